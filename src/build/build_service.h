// From a request to the artifact for one device: the data path of Kiln.
// build_service.cc reads top to bottom like the picture in src/DESIGN.md.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "build/cached_builds.h"
#include "build/config.h"
#include "build/journal.h"
#include "build/precompiled_headers.h"
#include "build/request_keys.h"
#include "build/toolchains.h"
#include "cache/cache.h"
#include "compile/pool/worker_pool.h"
#include "device/target.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "remote/client/remote.h"
#include "render/catalog.h"
#include "util/fork_count.h"
#include "util/lazy_count.h"

namespace kiln {

struct BuildServiceOptions {
  /// Cancels a query for an NVRTC's version, which may hang if that NVRTC is broken.
  std::stop_token stop{};
  /// False to only inspect: a cache root that does not exist is not created.
  bool make_root = true;
  /// False where nothing is fetched: KILN_REMOTE and what belongs to it are not read.
  bool asks_remotes = true;
  /// Who signs uploads; nullopt: KILN_REMOTE_SIGN says.
  std::optional<std::vector<Signer>> signers{};
  /// False if the caller tells why the cache is off.
  bool warns_when_off = true;
  /// So many idle workers at most wait for the next build; 0: as many as build at a
  /// time.
  unsigned keeps_workers = 0;
  /// What is asked for, for a Journal: "kernels". Empty: nothing is told.
  std::string_view journal{};
  /// Fetched::why_built is wanted, whatever is told.
  bool explains = false;
  /// True for programs: where the root is refused, another takes its place. Whoever
  /// fills, looks at or removes a cache means the one that is named.
  bool may_be_elsewhere = false;
};

/// Compiles on demand, through the cache.
/// Thread safety: every method may run concurrently.
/// Fork safety: in a forked child prepare(), key() and fetch() return kUnavailable,
/// because threads that do not exist there may hold their locks. The child can destroy
/// this service and open another one.
class BuildService {
 public:
  /// Opens the cache (never an error: see Cache::open) and the templates. Does not
  /// search for NVRTC, start a worker or ask a remote yet. Errors: as
  /// TemplateCatalog::open and remote_setup.
  [[nodiscard]] static Result<std::unique_ptr<BuildService>> open(
      const Config& config, const BuildServiceOptions& options = {});

  BuildService(const BuildService&) = delete;
  BuildService& operator=(const BuildService&) = delete;
  ~BuildService() = default;

  /// Checks a request; for a source, as far as is possible without its headers.
  /// Errors: kInvalidArgument, kNotFound, see request::resolve; kUnavailable in a
  /// forked child.
  [[nodiscard]] Result<PreparedRequest> prepare(const Request& request) const;

  /// Finds target, toolchain and key of `request` for one device, which a source may
  /// want another target for, or for one target by name; or says why a template's
  /// limits exclude that target. Reads a source's headers at the first call for it.
  /// Errors: kInvalidArgument (no NVRTC ever built for it), kUnavailable (no NVRTC
  /// found here builds for it), kIo, kResourceLimit (its headers), kCancelled (by
  /// `stop`, while they are searched). `toolchain`, if given, is what builds it.
  [[nodiscard]] Result<std::variant<KeyedRequest, device::TargetSkipped>> key(
      const PreparedRequest& request, const device::BuildFor& build_for,
      const std::stop_token& stop = {},
      std::shared_ptr<const device::ToolchainChoice> toolchain = nullptr);

  /// The NVRTC for `request`: the one that it names, else the one that is chosen for
  /// `build_for`. Errors: as Toolchains::named() and choose().
  [[nodiscard]] Result<std::shared_ptr<const device::ToolchainChoice>> toolchain(
      const PreparedRequest& request, const device::BuildFor& build_for,
      const std::stop_token& stop = {});

  /// Returns the artifact from memory, disk, a seed or a remote, or builds it; `stop`
  /// ends a wait and a build. A fault of the cache or of a remote is a miss, never an
  /// error. Blocks; every wait has a deadline. Errors: as WorkerPool::compile; kCorrupt
  /// when the compiler's output cannot be read; kUnavailable on a miss with KILN_NO_JIT
  /// or without an NVRTC. After an error `whom`, if given, says whom it answers. The
  /// Journal is told that it is for `device`, an ordinal; a failure then is told by the
  /// caller.
  [[nodiscard]] Result<Fetched> fetch(const KeyedRequest& request,
                                      const std::stop_token& stop = {},
                                      Answers* whom = nullptr,
                                      std::optional<int> device = {});

  /// `request` under the key that has the program's name, which may be its own.
  [[nodiscard]] KeyedRequest named(const KeyedRequest& request) {
    return keys_.named(request);
  }

  /// `request`, or, if the cache has an artifact of another program's name for it, the
  /// same under its own name. Errors: none; what cannot be read is as if it were not
  /// there.
  [[nodiscard]] KeyedRequest under_own_name(const KeyedRequest& request);

  /// What fetch() would find on disk or in a seed for `request`, which is then as the
  /// toolchain that has built it; nullopt: nothing. Counts no hit.
  [[nodiscard]] std::optional<std::pair<KeyedRequest, cache::Tier>> inspect(
      const KeyedRequest& request, const std::stop_token& stop = {});

  /// Errors: kUnavailable with KILN_NO_JIT, naming what is not in the cache.
  [[nodiscard]] Result<void> check_may_build(std::string_view label,
                                             std::string_view target) const;

  /// The preimage: the fields that `request.key` is the digest of.
  [[nodiscard]] Fields preimage(const KeyedRequest& request) {
    return keys_.preimage(request);
  }

  /// False in a forked child.
  [[nodiscard]] bool is_of_this_process() const { return fork_count() == forks_; }
  [[nodiscard]] const Config& config() const { return config_; }
  /// Builds at a time: Config::jobs, else the usable cores.
  [[nodiscard]] const LazyCount& jobs() const { return jobs_; }
  [[nodiscard]] const render::TemplateCatalog& catalog() const { return catalog_; }
  [[nodiscard]] cache::Cache& cache() { return *cache_; }
  /// For memos of files' stamps.
  [[nodiscard]] OwnFolder memo_folder();
  [[nodiscard]] Toolchains& toolchains() { return toolchains_; }
  [[nodiscard]] compile::WorkerPool& workers() { return workers_; }
  [[nodiscard]] CachedBuilds& builds() { return builds_; }
  /// Null: nothing is told.
  [[nodiscard]] Journal* journal() { return journal_.get(); }
  /// Tells how what was asked for ended; an error only if it is no end of this process.
  /// `compared` is called for a build. Returns Fetched::why_built.
  std::string tell(const Asked& asked, const Result<Fetched>& fetched,
                   const std::function<Compared()>& compared);

 private:
  /// Who waits for a request, or for an object that it links.
  struct Asker {
    std::chrono::steady_clock::time_point begun;
    const std::stop_token& stop;
    Answers* whom;
    std::optional<int> device;
  };
  [[nodiscard]] Result<Fetched> fetch(const KeyedRequest& request, const Asker& asker);
  [[nodiscard]] Result<Fetched> fetch_part(const KeyedRequest& object,
                                           const Asker& asker);
  /// `request` as each other toolchain that is recorded would have built it: where
  /// nothing can be built, that is a hit as well. Empty where `request` may be built.
  [[nodiscard]] std::vector<KeyedRequest> of_other_toolchains(
      const KeyedRequest& request, const std::stop_token& stop);
  /// The same for just this key. `is_own`: this call built.
  [[nodiscard]] Result<Fetched> fetch_key(const KeyedRequest& request,
                                          const Asker& asker, bool& is_own);
  void tell(const KeyedRequest& request, Result<Fetched>& fetched, const Asker& asker);
  BuildService(const Config& config, const BuildServiceOptions& options,
               render::TemplateCatalog catalog,
               std::optional<remote::RemoteOptions> remotes);

  /// Why this machine builds nothing of it.
  [[nodiscard]] Result<void> check_may_build(const KeyedRequest& request,
                                             std::string_view target) const;

  [[nodiscard]] Result<NewArtifact> build(const KeyedRequest& request,
                                          const std::stop_token& stop,
                                          const compile::ProgressCallback& on_phase);
  /// Links what `objects` were built to.
  [[nodiscard]] Result<NewArtifact> link(const KeyedRequest& request,
                                         const std::vector<Fetched>& objects,
                                         const std::stop_token& stop,
                                         const compile::ProgressCallback& on_phase);
  /// Why `output` must not be stored; nullopt: it may. Counted and logged.
  [[nodiscard]] std::optional<Error> find_mismatch(
      const KeyedRequest& request, const compile::CompileOutput& output,
      std::chrono::system_clock::time_point began);
  [[nodiscard]] Result<void> check_process() const;

  // Constant after construction.
  const std::uint64_t forks_ = fork_count();
  const Config config_;
  const LazyCount jobs_;
  const render::TemplateCatalog catalog_;
  const std::unique_ptr<Journal> journal_;  // null: nothing is told
  const std::unique_ptr<cache::Cache> cache_;
  const std::unique_ptr<remote::Remote> remote_;  // null: there is none
  CachedBuilds builds_;
  compile::WorkerPool workers_;
  const PrecompiledHeaders precompiled_;
  Toolchains toolchains_;
  RequestKeys keys_;
};

}  // namespace kiln
