// What every kind of artifact has in common between its key and its bytes: memory,
// disk, one build a key in this process and, as far as locks help, on this machine;
// publish. Knows neither requests nor compilers.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cache/cache.h"
#include "compile/pool/build_watch.h"
#include "kiln/result.h"
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

/// What a builder made.
struct NewArtifact {
  std::shared_ptr<const cache::StoredObject> object;
  /// Why it is not what its key stands for, and so must not be kept; nullopt: it is.
  std::optional<Error> mismatch;
};

/// What is to be found or built. Views must outlive the call.
struct BuildOrder {
  const Digest& key;
  std::string_view target;  // "sm_90a": an object for another one is corrupt
  std::string_view label;   // what messages call it
  /// Builds it, telling each phase as it begins.
  std::function<Result<NewArtifact>(const std::stop_token&,
                                    const compile::ProgressCallback&)>
      build;
};

/// Thread safety: every method may run concurrently; no lock is held across a build.
class CachedBuilds {
 public:
  /// `cache` must outlive it.
  explicit CachedBuilds(cache::Cache& cache) : cache_(cache) {}

  /// From memory or from disk; a fault of the cache is a miss.
  [[nodiscard]] std::optional<Fetched> find(const Digest& key, std::string_view target);

  /// After a miss: one caller builds, the others wait for it. Every wait has a
  /// deadline. Errors: the builder's own; kCancelled.
  [[nodiscard]] Result<Fetched> build(const BuildOrder& order,
                                      const std::stop_token& stop);

  /// `run(on_phase)`, which asks a worker: its failure is counted, if it had begun.
  template <typename Run>
  [[nodiscard]] auto ask_worker(const compile::ProgressCallback& on_phase,
                                const Run& run) {
    bool begun = false;
    auto result = run([&](compile::BuildPhase phase) {
      begun = true;
      on_phase(phase);
    });
    if (!result && begun)  // else no worker was lost, whatever the error is
      count_failure(result.error());
    return result;
  }

  /// Counts what became of the worker that ended with `error`.
  void count_failure(const Error& error);

 private:
  [[nodiscard]] std::optional<Fetched> find_in_memory(const Digest& key);
  [[nodiscard]] Result<Fetched> build_locked(const BuildOrder& order,
                                             const std::stop_token& stop);
  [[nodiscard]] Result<Fetched> build_here(const BuildOrder& order,
                                           const std::stop_token& stop,
                                           cache::KeyLock& lock);
  [[nodiscard]] Fetched publish(const BuildOrder& order,
                                std::shared_ptr<const cache::StoredObject> object);

  cache::Cache& cache_;
  SingleFlight<Digest, Fetched> builds_;
  Mutex mutex_;
  // What could not be stored stays usable in this process, each as a hit that says so.
  std::unordered_map<Digest, Fetched> unstored_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
