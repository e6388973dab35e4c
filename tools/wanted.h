// What `pack`, `push` and `pull` are about: objects of the cache by the filters of
// `ls`, or by the words of `warm`.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "build/build_service.h"
#include "cache/cache.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "toolchain/toolchain.h"
#include "tools/context.h"
#include "tools/entry_filter.h"
#include "tools/selection.h"

namespace kiln::tools {

/// An object, or why there is none.
struct Wanted {
  Digest key;
  std::string label;
  std::string arch;
  std::optional<Error> error{};
  std::int64_t created_ns = 0;  // 0: not looked at
};

/// Of an item of a selection.
[[nodiscard]] Wanted wanted_of(const BuildItem& item);

/// What is wanted, and the cache, which stays open.
struct WantedList {
  std::unique_ptr<BuildService> service;      // of requests
  std::unique_ptr<cache::Cache> opened;       // of filters
  std::vector<Wanted> wanted;                 // each key once
  std::vector<device::Toolchain> toolchains;  // that are recorded; the newest first
  std::uint64_t bad_lines = 0;                // of manifests, left out

  [[nodiscard]] cache::Cache& cache() const {
    return service != nullptr ? service->cache() : *opened;
  }
};

/// True if the words are those of `warm`, and not the filters of `ls`.
[[nodiscard]] bool are_requests(const SelectionOptions& selection);

/// Succeeds if at most one of these says what is wanted. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_one_choice(std::string_view verb,
                                            const std::vector<std::string>& keys,
                                            const std::string& pack,
                                            const SelectionOptions& selection);

/// What `warm` would build. Asks no remote cache. Errors: those of list_items().
[[nodiscard]] Result<WantedList> find_requests(Context& context,
                                               const SelectionOptions& selection,
                                               bool make_root = false);

/// What `ls` would list. Errors: those of open_named_cache() and make_query().
[[nodiscard]] Result<WantedList> find_entries(const Context& context,
                                              const SelectionOptions& selection,
                                              const EntryNames& names = {});

/// Whether sources and logs of programs beneath `kiln run` leave this machine.
enum class Source : bool { kOut, kIn };

/// Adds --with-source.
void add_source_option(OptionSet& cli, bool& with_source);

/// How many bytes sound_object() has to read; of an object of a seed, whose size nobody
/// knows yet, kMostHeld.
[[nodiscard]] std::uint64_t bytes_to_read(const cache::Cache& cache, const Digest& key);

/// The object that the cache or a seed has, after every check. Errors: kNotFound;
/// kCorrupt, naming the check; kUntrusted; kIo.
[[nodiscard]] Result<cache::StoredObject> sound_object(const cache::Cache& cache,
                                                       const Digest& key,
                                                       Source source);

}  // namespace kiln::tools
