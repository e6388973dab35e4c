// Inputs of files: what their build has read and no field of their key names, such as
// the headers that a compiler found. A list of them stands in the cache where the
// files would stand; their contents lead from it to the key of the files.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/object.h"
#include "codec/fields.h"
#include "key/header_store.h"
#include "kiln/file_cache.h"
#include "kiln/result.h"
#include "util/fork_count.h"

namespace kiln::files {

/// The only file of an object that is a list. Nobody else may store one of that name.
inline constexpr std::string_view kListName = ".kiln-inputs";

/// An object that holds such a list, for the key of `preimage`. Errors: as
/// make_object().
[[nodiscard]] Result<cache::StoredObject> make_list(const FileRequest& request,
                                                    const Fields& preimage,
                                                    const Fields& inputs);
/// Errors: kInvalidArgument, for files among which one has the name of a list.
[[nodiscard]] Result<void> check_no_list(const std::vector<NamedFile>& files);

/// nullopt: the object is no list. Errors: kCorrupt.
[[nodiscard]] Result<std::optional<Fields>> list_in(const cache::StoredObject& object);

/// The inputs of a build as it has read them.
struct BuildInputs {
  Fields all{};  // sorted, each once
  /// Why the files are not stored: one that was changed since the build began, or is
  /// gone, or cannot be read.
  std::optional<Error> unfit{};
};

/// Knows files by their stamps, as headers of kernels: in the process, and on disk
/// where stamps are reliable.
/// Thread safety: every method may run concurrently. In a forked child every file is
/// read.
class InputReader {
 public:
  /// `memo_folder` is `<cache root>/memo`; empty: remember in the process only.
  explicit InputReader(OwnFolder memo_folder)
      : store_(std::move(memo_folder), key::Scans::kNothing) {}

  /// Appends to `preimage` what each input of `list` is now. Where a tool of it is
  /// absent, this machine cannot build: tools, and files that are absent, count as they
  /// were. Cost: one stat for each, and its bytes where that says nothing.
  void extend(Fields& preimage, const Fields& list);

  /// Errors: none; `unfit` says it.
  [[nodiscard]] BuildInputs read(const std::vector<std::string>& files,
                                 const std::vector<std::string>& tools,
                                 std::chrono::system_clock::time_point begun);

 private:
  class Pass;

  const OwnerProcess owner_;  // a forked child may find the store's mutex locked
  key::HeaderStore store_;
};

}  // namespace kiln::files
