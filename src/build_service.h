// From a request to the artifact for one device: the data path of Kiln.
// build_service.cc reads top to bottom like the picture in src/DESIGN.md.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <variant>

#include "cache/cache.h"
#include "compile/worker_pool.h"
#include "config.h"
#include "device/target.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "render/catalog.h"
#include "request_keys.h"
#include "toolchains.h"
#include "util/fork_count.h"
#include "util/lazy_count.h"
#include "util/mutex.h"
#include "util/single_flight.h"

namespace kiln {

/// How an artifact came about.
enum class Outcome : std::uint8_t {
  kHit,       // it was there
  kCompiled,  // this process built it
  kWaited,    // another process, or another thread of this one, built it meanwhile
};

/// "hit", "compiled", "waited".
[[nodiscard]] std::string_view to_string(Outcome outcome);

struct Fetched {
  std::shared_ptr<const cache::StoredObject> object;  // never null
  Outcome outcome = Outcome::kHit;
  /// Why it is not in the cache now, although it was built; nullopt: it is there.
  std::optional<Error> not_stored;
  /// False: built from other inputs than its key says (a header that only a macro
  /// names, another compiler), so it is the answer to this request and to no other.
  bool is_as_keyed = true;
};

struct BuildServiceOptions {
  /// Ends the question to an NVRTC what it is, which may take long where it is broken.
  std::stop_token stop{};
  /// False to look at what is there: a cache that is not there stays so.
  bool make_root = true;
};

/// Compiles on demand, through the cache.
/// Thread safety: every method may run concurrently.
/// Fork safety: in a forked child prepare(), key() and fetch() are kUnavailable, since
/// what they take may be locked for ever by threads that are not there; it can be
/// destroyed, and another one opened.
class BuildService {
 public:
  /// Opens the cache (never an error: see Cache::open) and the templates; looks for no
  /// NVRTC and starts no worker yet. Errors: as TemplateCatalog::open.
  [[nodiscard]] static Result<std::unique_ptr<BuildService>> open(
      const Config& config, const BuildServiceOptions& options = {});

  BuildService(const BuildService&) = delete;
  BuildService& operator=(const BuildService&) = delete;
  BuildService(BuildService&&) = delete;
  BuildService& operator=(BuildService&&) = delete;
  ~BuildService() = default;

  /// Checks a request; of a source, all that can be said without its headers.
  /// Errors: kInvalidArgument, kNotFound, see request::resolve; kUnavailable in a
  /// forked child.
  [[nodiscard]] Result<PreparedRequest> prepare(const Request& request) const;

  /// What `request` means for one device, or for one architecture by name: the target,
  /// the toolchain, the key. Or why a template's limits leave that target out. A
  /// source's headers are read at the first call for it. Errors: kInvalidArgument (no
  /// NVRTC ever built for it), kUnavailable (none found here does), kIo, kResourceLimit
  /// (its headers).
  [[nodiscard]] Result<std::variant<KeyedRequest, device::TargetSkipped>> key(
      const PreparedRequest& request, const device::BuildFor& build_for);

  /// The artifact: from memory, from disk, or built; `stop` ends a wait and a build. A
  /// fault of the cache is a miss and never an error. Blocks; every wait in it has a
  /// deadline. Errors: as WorkerPool::compile; kCorrupt when the compiler's output is
  /// not what was asked for; kUnavailable on a miss with KILN_NO_JIT or without an
  /// NVRTC.
  [[nodiscard]] Result<Fetched> fetch(const KeyedRequest& request,
                                      const std::stop_token& stop = {});

  /// What `request.key` is the digest of.
  [[nodiscard]] cache::Fields preimage(const KeyedRequest& request) {
    return keys_.preimage(request);
  }

  [[nodiscard]] const Config& config() const { return config_; }
  /// Builds at a time: Config::jobs, else the usable cores.
  [[nodiscard]] const LazyCount& jobs() const { return jobs_; }
  [[nodiscard]] const render::TemplateCatalog& catalog() const { return catalog_; }
  [[nodiscard]] cache::Cache& cache() { return *cache_; }
  [[nodiscard]] Toolchains& toolchains() { return toolchains_; }
  [[nodiscard]] compile::WorkerPool& workers() { return workers_; }

 private:
  using ObjectPointer = std::shared_ptr<const cache::StoredObject>;

  BuildService(const Config& config, const BuildServiceOptions& options,
               render::TemplateCatalog catalog);

  // The steps of fetch(), in order.
  [[nodiscard]] std::optional<Fetched> find_in_memory(const cache::Digest& key);
  [[nodiscard]] ObjectPointer find_on_disk(const KeyedRequest& request);
  [[nodiscard]] Result<Fetched> build_once(const KeyedRequest& request,
                                           const std::stop_token& stop);
  [[nodiscard]] Result<Fetched> build_locked(const KeyedRequest& request,
                                             const std::stop_token& stop);
  [[nodiscard]] Result<Fetched> build(const KeyedRequest& request,
                                      const std::stop_token& stop,
                                      cache::KeyLock& lock);
  /// Why `output` is not what the key stands for; nullopt: it is. Counted and logged.
  [[nodiscard]] std::optional<Error> find_mismatch(
      const KeyedRequest& request, const compile::CompileOutput& output,
      std::chrono::system_clock::time_point began);
  [[nodiscard]] Fetched publish(const KeyedRequest& request,
                                const ObjectPointer& object);
  [[nodiscard]] Result<void> check_process() const;
  /// Counts what became of the worker that ended with `error`.
  void count_failure(const Error& error);

  // Constant after construction.
  const std::uint64_t forks_ = fork_count();
  const Config config_;
  const LazyCount jobs_;
  const render::TemplateCatalog catalog_;
  const std::unique_ptr<cache::Cache> cache_;
  compile::WorkerPool workers_;
  Toolchains toolchains_;
  RequestKeys keys_;

  SingleFlight<cache::Digest, Fetched> builds_;
  Mutex mutex_;
  // What could not be stored stays usable in this process, each as a hit that says so.
  std::unordered_map<cache::Digest, Fetched> unstored_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
