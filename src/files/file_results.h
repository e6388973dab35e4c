// Results of other programs that are files, under a key of labelled fields: found like
// kernels, or built once on a machine by whoever asks first.

#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "build/build_service.h"
#include "build/cached_builds.h"
#include "codec/named_files.h"
#include "compile/protocol/program_end.h"
#include "files/private_folder.h"
#include "kiln/result.h"

namespace kiln::files {

/// Which result: fields in any order, each label once. Everything that determines the
/// files belongs here.
using KeyFields = std::vector<Field>;

/// For listings and messages; part of no key.
struct Labels {
  std::string name{};    // "add_kernel"; "" is "files"
  std::string target{};  // "sm_90", at most 16 characters; "" is "any"
  std::string tool{};    // "triton-3.9.0"
};

struct FilesOrder {
  KeyFields fields;
  Labels labels{};
  /// Names of files that are source: they are left out of packs and remotes.
  std::vector<std::string> sources{};
};

struct FoundFiles {
  Digest key;
  Given given;
  FetchOutcome outcome = FetchOutcome::kHit;
  cache::Tier tier = cache::Tier::kBuild;
  /// Why it is not in the cache; nullopt: it is.
  std::optional<Error> not_stored{};
};

/// Where one build writes, and how it runs programs.
/// Thread safety: run() may be called concurrently.
class BuildFolder {
 public:
  /// All files that are in here when the build is over are its result.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  struct Ran {
    compile::ProgramEnd end;
    std::string output;  // of both streams; the middle of a long one is left out
  };
  /// Runs `command` in path(), until the build's limit; `environment` has "NAME=value"
  /// for all of it. Blocks. Errors: as compile::run_to_its_end(), with the output.
  [[nodiscard]] Result<Ran> run(const std::vector<std::string>& command,
                                const std::vector<std::string>& environment) const;

 private:
  friend class FileResults;
  std::filesystem::path path_;
  std::filesystem::path worker_;
  std::chrono::steady_clock::time_point deadline_;
  std::stop_token stop_;
};

/// Called in the thread that asks.
using BuildFiles = std::function<Result<void>(const BuildFolder&)>;

/// The caller's turn to build what begin() did not find. Others wait for it, for as
/// long as its limit and five seconds, and no longer than this lives. Thread safety:
/// one thread at a time, which need not be the one that began it.
class FilesTicket {
 public:
  /// Stores the files. Errors: as FileResults::put(); then others wait on.
  [[nodiscard]] Result<FoundFiles> commit(const std::vector<NamedFile>& files);
  /// The answer of all who wait.
  void fail(const Error& error) { build_.fail(error); }

 private:
  friend class FileResults;
  FilesTicket(FilesOrder order, Fields preimage, BuildTicket build)
      : order_(std::move(order)),
        preimage_(std::move(preimage)),
        build_(std::move(build)) {}

  FilesOrder order_;
  Fields preimage_;
  BuildTicket build_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

/// Thread safety: every method may run concurrently.
/// Fork safety: in a forked child get() and put() work; the others are errors.
class FileResults {
 public:
  /// `service` must outlive it.
  explicit FileResults(BuildService& service) : service_(service) {}

  /// From memory, disk, a seed or a remote; nullopt: none has it. Errors:
  /// kInvalidArgument (a label twice, or none); kIo: it cannot be given out;
  /// kCancelled.
  [[nodiscard]] Result<std::optional<FoundFiles>> get(const KeyFields& fields,
                                                      const std::stop_token& stop = {});

  /// Stores `files`, and gives them, or what another has stored under that key. Errors:
  /// as get() and encode_files(); kResourceLimit, over 512 MiB. A cache that cannot
  /// store them is none: FoundFiles::not_stored.
  [[nodiscard]] Result<FoundFiles> put(const FilesOrder& order,
                                       const std::vector<NamedFile>& files);

  /// What get() finds, or what `build` leaves in its folder. Of all processes of this
  /// machine one builds. The others wait, each no longer than `limit` and five seconds,
  /// and then build themselves. Threads of this process wait for the first one's wait
  /// and build. At `limit` the programs of a build are killed. A result over 512 MiB is
  /// given out and not stored. Errors: as get(); kInvalidArgument, of `order` and
  /// `limit` before anything is built; those of `build`, of which kInvalidArgument,
  /// kCompileFailed, kWorkerCrashed and kTimeout (of the same limit) are the answer of
  /// all who wait; kUnavailable, with KILN_NO_JIT, naming the result.
  [[nodiscard]] Result<FoundFiles> build_once(const FilesOrder& order,
                                              std::chrono::milliseconds limit,
                                              const BuildFiles& build,
                                              const std::stop_token& stop = {});

  /// What get() finds, or what others build meanwhile, or the caller's turn. Errors: as
  /// build_once(), whose waiters and these wait for each other.
  [[nodiscard]] Result<std::variant<FoundFiles, FilesTicket>> begin(
      const FilesOrder& order, std::chrono::milliseconds limit,
      const std::stop_token& stop = {});

  /// The fields whose digest is the key. Errors: kInvalidArgument.
  [[nodiscard]] static Result<Fields> preimage(KeyFields fields);

 private:
  [[nodiscard]] Result<std::optional<FoundFiles>> find(const Digest& key,
                                                       const std::stop_token& stop);
  /// The same without remotes.
  [[nodiscard]] Result<std::optional<FoundFiles>> find_here(const Digest& key);
  [[nodiscard]] static Result<void> check(const FilesOrder& order,
                                          std::chrono::milliseconds limit);
  /// Whether this process may build it.
  [[nodiscard]] Result<void> check_may_build(const Labels& labels) const;
  /// `too_large`: what is given out where it cannot be stored.
  [[nodiscard]] Result<NewArtifact> build_in(const BuildFolder& folder,
                                             const FilesOrder& order,
                                             const Fields& preimage,
                                             const BuildFiles& build,
                                             std::optional<Given>& too_large) const;

  BuildService& service_;
};

}  // namespace kiln::files
