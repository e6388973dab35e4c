// Files that other programs make (a library of nvcc, the kernels of another JIT) in
// Kiln's cache: found like kernels, or built by one process for all of a machine.
//
//   auto cache = kiln::FileCache::open();
//   auto adder = cache->build_once(
//       {.fields = {{"source", text}, {"compiler", version}}, .name = "adder"}, 5min,
//       [&](kiln::FileBuild& build) -> kiln::Result<void> {
//         const auto folder = build.folder();  // write the source there, and then
//         const auto ran = build.run({"nvcc", "-o", "adder.so", ...}, environment);
//         ...
//       });
//   dlopen((adder->folder / "adder.so").c_str(), RTLD_NOW);

#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kiln/export.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln {

/// Everything that determines the files: labels and values of any bytes, whose SHA-256
/// is the key. If something is missing here, a change of it still finds the old files.
using FileFields = std::map<std::string, std::string>;

struct FileRequest {
  FileFields fields;
  // For listings and messages; not in the key.
  std::string name{};    // "add_kernel"; "" is "files"
  std::string target{};  // "sm_90", at most 16 characters; "" is "any"
  std::string tool{};    // "triton-3.9.0"
  /// Names of files that are source text: packs and remotes do not get them.
  std::vector<std::string> sources{};
};

/// Views must outlive the call.
struct NamedFile {
  std::string_view name;  // "kernel.cubin", "lib/libx.so"
  std::span<const std::byte> bytes;
  bool is_program = false;  // it may be executed
};

/// Files in a folder of this process, which nobody else writes. Every call of this
/// process gives the same folder for one key; it goes with the process.
struct CachedFiles {
  std::string key;  // 64 hex digits
  std::filesystem::path folder;
  std::vector<std::string> names;  // relative to `folder`, sorted
  /// kHit, kSeed, kRemote; kCompiled: this call stored them; kWaited: another built
  /// them meanwhile.
  Event::Kind outcome = Event::Kind::kHit;
  /// Why they are not in the cache; nullopt: they are.
  std::optional<Error> not_stored{};
};

/// The caller's turn to build what nobody has. Others wait until this ends, or for its
/// limit and five seconds; then one of them builds.
/// Thread safety: run() may be called concurrently; else one thread at a time, which
/// need not be the one that began it.
class KILN_EXPORT FileBuild {
 public:
  FileBuild(FileBuild&& other) noexcept;
  FileBuild& operator=(FileBuild&& other) noexcept;
  FileBuild(const FileBuild&) = delete;
  FileBuild& operator=(const FileBuild&) = delete;
  ~FileBuild();

  /// An empty folder, made by the first call, which goes with this object. Errors: kIo.
  [[nodiscard]] Result<std::filesystem::path> folder();

  struct Ran {
    int status = 0;      // it exited with that
    int signal = 0;      // or was killed by that
    std::string output;  // of both streams; the middle of a long one is left out
  };
  /// Runs a program in folder(); the first word is a path, or is looked for in PATH.
  /// `environment`: "NAME=value", all of it. Stdin is empty. At the limit of the build,
  /// at the program's end and with this process, the program and all that it started
  /// are killed. Blocks. Errors: kInvalidArgument (no command), kUnavailable (it cannot
  /// be started), kTimeout, kResourceLimit, kWorkerCrashed, kCancelled, with the output
  /// so far; as folder().
  [[nodiscard]] Result<Ran> run(const std::vector<std::string>& command,
                                const std::vector<std::string>& environment,
                                const std::stop_token& stop = {});

  /// What the build reads and no field names: files, by absolute path, and the
  /// compilers that it starts, by path or by a name that is looked for in PATH. ELF
  /// files are known by their build id, all others by their content. The result is
  /// found only where each input is as it was. A machine without one of `tools` cannot
  /// build: there the tools, and files that are absent, count as they were. Files in
  /// folder() are no inputs. An input that changes while the files are built, or just
  /// before, keeps them out of the cache. Errors: kInvalidArgument; as folder().
  [[nodiscard]] Result<void> add_inputs(const std::vector<std::filesystem::path>& files,
                                        const std::vector<std::string>& tools = {});

  /// Replaces name, target, tool and sources; fields stay.
  void describe(const FileRequest& request);

  /// Stores files, and ends the build; call it once. Errors: as FileCache::put();
  /// kUnavailable (a forked child).
  [[nodiscard]] Result<CachedFiles> commit(const std::vector<NamedFile>& files);
  /// The same with all files in folder(). Above 512 MiB they are given out where they
  /// are, and not stored. Errors: kIo; kInvalidArgument: the folder holds something
  /// else than files and folders.
  [[nodiscard]] Result<CachedFiles> commit();

  /// Ends the build. kInvalidArgument, kCompileFailed, kWorkerCrashed, kTimeout and
  /// kResourceLimit are the answer of all who wait; after other errors they build.
  void fail(const Error& error);

 private:
  friend class FileCache;
  class KILN_HIDDEN Impl;
  explicit FileBuild(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null after a move
};

/// Kiln's cache for files. Verified on every read; packed, signed, pushed, trimmed (to
/// at most half of the cache's limit), listed and cleared like kernels. No function
/// throws. Thread safety: any number of threads may call any method, except while this
/// is moved or destroyed. Fork safety: in a forked child get(), put(),
/// new_folder() and destruction work; the rest returns kUnavailable.
class KILN_EXPORT FileCache {
 public:
  /// As Service::open(), but without a driver: this works where no GPU is. Of `options`
  /// on_event is not used. Errors: as there.
  [[nodiscard]] static Result<FileCache> open(const Options& options = {});

  FileCache(FileCache&& other) noexcept;
  FileCache& operator=(FileCache&& other) noexcept;
  FileCache(const FileCache&) = delete;
  FileCache& operator=(const FileCache&) = delete;
  /// Builds that have begun may outlive it.
  ~FileCache();

  /// From memory, disk, a seed or a remote; nullopt: nobody has them. Errors:
  /// kInvalidArgument (no fields); kIo: they cannot be given out; kCancelled.
  [[nodiscard]] Result<std::optional<CachedFiles>> get(
      const FileFields& fields, const std::stop_token& stop = {});

  /// Stores `files`, and gives them, or what another has stored under that key. Errors:
  /// kInvalidArgument (no fields, no files, a name that leads out of the folder or is
  /// given twice), kResourceLimit (over 512 MiB), kIo. If the cache cannot store them,
  /// they are given all the same, and CachedFiles::not_stored says why.
  [[nodiscard]] Result<CachedFiles> put(const FileRequest& request,
                                        const std::vector<NamedFile>& files);

  /// False with Options::no_jit.
  [[nodiscard]] bool builds() const;

  /// Takes files out of the cache that cannot be used. Seeds and remotes keep theirs.
  /// Errors: kInvalidArgument (no fields), kIo, kUnavailable (a read-only cache, a
  /// forked child).
  [[nodiscard]] Result<void> remove(const FileFields& fields);

  /// An empty folder of this process, which goes with it. Errors: kIo.
  [[nodiscard]] Result<std::filesystem::path> new_folder();

  /// What get() finds, what others build meanwhile, or the caller's turn. Waits for
  /// `limit` and five seconds at most, whoever dies, stops or hangs, and then it is the
  /// caller's turn. Errors: as get(); kInvalidArgument (`limit` is not above 0 and at
  /// most a year); those of the build that was waited for; kUnavailable: a miss with
  /// no_jit.
  [[nodiscard]] Result<std::variant<CachedFiles, FileBuild>> begin(
      const FileRequest& request, std::chrono::milliseconds limit,
      const std::stop_token& stop = {});

  /// begin(), and if it is the caller's turn, `build` in this thread, and then
  /// FileBuild::commit() with what it left in the folder, or FileBuild::fail(). Errors:
  /// as all these; those of `build`.
  [[nodiscard]] Result<CachedFiles> build_once(
      const FileRequest& request, std::chrono::milliseconds limit,
      const std::function<Result<void>(FileBuild&)>& build,
      const std::stop_token& stop = {});

 private:
  class KILN_HIDDEN Impl;
  friend class FileBuild;
  explicit FileCache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // null after a move
};

}  // namespace kiln
