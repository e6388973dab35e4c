// The way from a key to its bytes, for every kind of artifact: look in memory, on disk
// and in seeds; ask remotes and build, once per key in this process and, where locks
// work, on this machine; publish. Knows neither requests nor compilers.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "build/in_progress.h"
#include "build/shared_failure.h"
#include "cache/cache.h"
#include "compile/pool/build_watch.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "remote/client/remote.h"
#include "util/fork_count.h"
#include "util/mutex.h"
#include "util/single_flight.h"

namespace kiln {

/// How an artifact was obtained.
enum class FetchOutcome : std::uint8_t {
  kHit,       // found in memory, on disk, in a seed or on a remote
  kCompiled,  // this process built it
  kWaited,    // another process, or thread of this one, built it meanwhile
};

/// "hit", "compiled", "waited".
[[nodiscard]] std::string_view to_string(FetchOutcome outcome);

struct Fetched {
  /// Null only in a FetchedPlan.
  std::shared_ptr<const cache::StoredObject> object;
  FetchOutcome outcome = FetchOutcome::kHit;
  cache::Tier tier = cache::Tier::kBuild;       // where it comes from
  std::string server{};                         // of kRemote: its label
  std::chrono::milliseconds built_in{0};        // of kCompiled: the build, and no wait
  std::chrono::milliseconds parts_built_in{0};  // the same of what a link consists of
  std::string why_built{};  // of kCompiled, where it is told or asked for: see Journal
  /// Why the artifact was built but not stored; nullopt: it is in the cache.
  std::optional<Error> not_stored{};
  /// False: built from other inputs than its key names (a header that only a macro
  /// names, another compiler), so it answers this request and no other.
  bool is_as_keyed = true;
};

/// kHit, kSeed, kRemote, kCompiled or kWaited.
[[nodiscard]] Event::Kind event_of(const Fetched& fetched);

/// The result of a builder.
struct NewArtifact {
  std::shared_ptr<const cache::StoredObject> object;
  /// Why it does not match its key and must not be stored; nullopt: it matches.
  std::optional<Error> mismatch;
};

/// Whose answer the end of a build is, of all who waited for it.
enum class Answers : std::uint8_t {
  kItsCaller,    // the build may have read what the key does not cover
  kThisProcess,  // the others do not know why
  kEverybody,
};

/// How remotes are asked.
enum class Remotes : std::uint8_t {
  kBesideBuild,  // first alone, and then the build runs beside them
  kBriefly,      // alone, as long as a build would wait for them
  kPatiently,    // alone, as long as transfers take: nothing can be built
  kAsked,        // not again
};

/// The artifact to find or build. Views must outlive the call.
struct BuildOrder {
  const Digest& key;
  std::string_view target;  // "sm_90a"; an object for another target is corrupt
  std::string_view label;   // its name in messages
  /// Builds it and reports each phase as it begins. Not of find_remote().
  std::function<Result<NewArtifact>(const std::stop_token&,
                                    const compile::ProgressCallback&)>
      build{};
  /// Whom a failure of `build` answers. Empty: everybody.
  std::function<Answers(const Error&)> whom{};
  Remotes remotes = Remotes::kBesideBuild;
  /// After which the builder ends; nullopt: as the cache was opened for.
  std::optional<std::chrono::milliseconds> limit{};
  /// Of the whole get that this is a part of: a link and its objects wait for remotes
  /// no longer than one kernel does.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
};

class CachedBuilds;

/// A build that its holder makes by himself, while others wait for it: as long as the
/// limit of its order, and no longer than this lives. Without commit() or fail() one of
/// those who wait builds next.
/// Thread safety: one thread at a time, which need not be the one that began it.
class BuildTicket {
 public:
  /// Publishes what was built.
  [[nodiscard]] Fetched commit(std::shared_ptr<const cache::StoredObject> object);
  /// The error is the answer of all who wait.
  void fail(const Error& error);

 private:
  friend class CachedBuilds;
  BuildTicket(CachedBuilds& builds, const BuildOrder& order, cache::OwnedRange lock,
              InProgressFile shown)
      : builds_(&builds),
        key_(order.key),
        limit_(order.limit),
        lock_(std::move(lock)),
        shown_(std::move(shown)) {}

  CachedBuilds* builds_;
  Digest key_;
  std::optional<std::chrono::milliseconds> limit_;
  cache::OwnedRange lock_;  // not held where locks do not work
  InProgressFile shown_;
};

/// Thread safety: every method may run concurrently; no lock is held across a build.
class CachedBuilds {
 public:
  enum class Wait : bool { kNo, kYes };  // for another who builds the same key

  /// `cache` and `remote`, which may be null, must outlive it. `conditions` are those
  /// of all builds.
  CachedBuilds(cache::Cache& cache, BuildConditions conditions,
               remote::Remote* remote = nullptr);

  /// From memory, disk or a seed; a fault of the cache is a miss.
  [[nodiscard]] std::optional<Fetched> find(const Digest& key, std::string_view target);

  /// After a miss, from a remote alone; nullopt: none has it, or there is none. One
  /// caller on this machine asks, and then the others. Errors: kCancelled.
  [[nodiscard]] Result<std::optional<Fetched>> find_remote(const BuildOrder& order,
                                                           const std::stop_token& stop);

  /// After a miss, one caller on this machine asks remotes and builds; the others wait
  /// for its result or failure. If they cannot use it (not stored, not as keyed), each
  /// builds for itself: nobody waits for two builds. Every wait has a deadline. Errors:
  /// the builder's own, and then `whom`, if given, says whom it answers; kCancelled.
  [[nodiscard]] Result<Fetched> build(const BuildOrder& order,
                                      const std::stop_token& stop,
                                      Answers* whom = nullptr);

  /// The same without waiting for others, who may ask at the same time. Errors:
  /// kCancelled.
  [[nodiscard]] Result<std::optional<Fetched>> ask_remote(const BuildOrder& order,
                                                          const std::stop_token& stop);

  /// After a miss: what others have built meanwhile, what a remote has, or a ticket for
  /// the caller's own build. Waits for others no longer than build(). `order.build` is
  /// not called. Errors: those of the build that was waited for; kCancelled.
  [[nodiscard]] Result<std::variant<Fetched, BuildTicket>> begin(
      const BuildOrder& order, const std::stop_token& stop, Wait wait = Wait::kYes);

  /// Publishes and uploads what its caller has made without a turn. As find(), it works
  /// in a forked child, which uploads nothing.
  [[nodiscard]] Fetched put(std::shared_ptr<const cache::StoredObject> object);

  /// Takes a sound object out that cannot be used here: this process finds it no more,
  /// on a remote either. Errors: kIo; kUnavailable (a read-only cache).
  [[nodiscard]] Result<void> remove(const Digest& key);

  /// Calls `run(on_phase)`, which asks a worker; counts a failure after a phase began.
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

  /// Adds `error` to the counter for compile failures, crashed or killed workers.
  void count_failure(const Error& error);

 private:
  struct Ended {
    Result<Fetched> fetched;
    Answers whom = Answers::kEverybody;
  };

  /// What a wait for the key's lock came to.
  struct Locked {
    std::optional<Ended> ended{};  // nullopt: it is the caller's turn
    cache::KeyLock::Acquired acquired{};
  };

  friend class BuildTicket;
  using Flights = SingleFlight<Digest, Ended>;

  [[nodiscard]] std::optional<Fetched> find_in_memory(const Digest& key);
  [[nodiscard]] Flights::Landed run_once(Flights& flights, const BuildOrder& order,
                                         const std::stop_token& stop);
  [[nodiscard]] Locked lock(const BuildOrder& order, const std::stop_token& stop,
                            Wait wait);
  [[nodiscard]] Ended build_locked(const BuildOrder& order, const std::stop_token& stop,
                                   Wait wait);
  [[nodiscard]] Ended ask_and_build(const BuildOrder& order,
                                    const std::stop_token& stop,
                                    cache::KeyLock::Acquired& acquired);
  [[nodiscard]] Ended build_here(const BuildOrder& order, const std::stop_token& stop,
                                 cache::KeyLock::Acquired& acquired);
  [[nodiscard]] Fetched publish_found(remote::Found found);
  [[nodiscard]] Fetched publish(Fetched fetched);
  [[nodiscard]] Fetched publish_built(Fetched fetched, cache::OwnedRange& lock);
  void upload(std::shared_ptr<const cache::StoredObject> object);

  const OwnerProcess owner_;  // a forked child may find `mutex_` locked for ever
  cache::Cache& cache_;
  remote::Remote* const remote_;  // null: there is none
  const SharedFailures failures_;
  const OwnFolder in_progress_;
  Flights builds_;
  Flights questions_;  // of find_remote()
  Mutex mutex_;
  // Artifacts that could not be stored: hits in this process, with `not_stored` set.
  std::unordered_map<Digest, Fetched> unstored_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
