#include "build/cached_builds.h"

#include <utility>

#include "build/artifact.h"
#include "build/build_options.h"
#include "build/wait_notice.h"
#include "util/log.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln {
namespace {

using ObjectPointer = std::shared_ptr<const cache::StoredObject>;

cache::Phase lock_phase(compile::BuildPhase phase) {
  switch (phase) {
    case compile::BuildPhase::kQueued:
      return cache::Phase::kQueued;
    case compile::BuildPhase::kStarting:
    case compile::BuildPhase::kOpening:
      return cache::Phase::kStarting;
    case compile::BuildPhase::kCompiling:
    case compile::BuildPhase::kReading:
      return cache::Phase::kCompiling;
  }
  return cache::Phase::kStarting;
}

using remote::Remote;

Remote::Built kind_of(const Result<Fetched>& built) {
  if (!built && built.error().code == ErrorCode::kCancelled)
    return Remote::Built::kStopped;
  if (!built &&
      (built.error().code == ErrorCode::kUnavailable || built.error().from_outside))
    return Remote::Built::kImpossible;
  return Remote::Built::kAnswer;
}

tl::unexpected<Error> stopped_asking(std::string_view label) {
  return fail(ErrorCode::kCancelled, "stopped while remote caches were asked for {}",
              label);
}

}  // namespace

std::string_view to_string(FetchOutcome outcome) {
  return word_of(outcome, {"hit", "compiled", "waited"});
}

Event::Kind event_of(const Fetched& fetched) {
  switch (fetched.outcome) {
    case FetchOutcome::kHit:
      return fetched.tier == cache::Tier::kSeed     ? Event::Kind::kSeed
             : fetched.tier == cache::Tier::kRemote ? Event::Kind::kRemote
                                                    : Event::Kind::kHit;
    case FetchOutcome::kCompiled:
      return Event::Kind::kCompiled;
    case FetchOutcome::kWaited:
      return Event::Kind::kWaited;
  }
  return Event::Kind::kHit;
}

CachedBuilds::CachedBuilds(cache::Cache& cache, BuildConditions conditions,
                           Remote* remote)
    : cache_(cache),
      remote_(remote),
      failures_(node_folder(cache, "failed"), std::move(conditions)),
      in_progress_(in_progress_folder(cache)) {}

std::optional<Fetched> CachedBuilds::find_in_memory(const Digest& key) {
  if (!owner_.is_this())
    return std::nullopt;
  const MutexLock lock(mutex_);
  const auto found = unstored_.find(key);
  return found == unstored_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Fetched> CachedBuilds::find(const Digest& key, std::string_view target) {
  if (auto fetched = find_in_memory(key))
    return fetched;
  cache::Tier tier = cache::Tier::kDisk;
  std::optional<cache::StoredObject> object = cache_.find(key, target, &tier);
  if (!object)
    return std::nullopt;
  return Fetched{
      .object = std::make_shared<const cache::StoredObject>(*std::move(object)),
      .outcome = FetchOutcome::kHit,
      .tier = tier};
}

Result<std::optional<Fetched>> CachedBuilds::find_remote(const BuildOrder& order,
                                                         const std::stop_token& stop) {
  if (remote_ == nullptr)
    return std::nullopt;
  auto landed = run_once(questions_, order, stop);
  if (!landed.result)
    return tl::unexpected(std::move(landed.result).error());
  Result<Fetched>& fetched = landed.result->fetched;
  if (fetched)
    return *std::move(fetched);
  if (fetched.error().code == ErrorCode::kNotFound)
    return std::nullopt;
  return tl::unexpected(std::move(fetched).error());
}

Result<std::optional<Fetched>> CachedBuilds::ask_remote(const BuildOrder& order,
                                                        const std::stop_token& stop) {
  if (remote_ == nullptr)
    return std::nullopt;
  const auto is_over = [](const std::stop_token&) { return Remote::Built::kAnswer; };
  auto found = order.remotes == Remotes::kPatiently
                   ? remote_->get(order.key, order.target, stop)
                   : remote_->get(order.key, order.target, stop, is_over,
                                  std::chrono::steady_clock::now() - order.begun);
  if (found)
    return publish_found(*std::move(found));
  if (stop.stop_requested())
    return stopped_asking(order.label);
  return std::nullopt;
}

Result<Fetched> CachedBuilds::build(const BuildOrder& order,
                                    const std::stop_token& stop, Answers* whom) {
  auto landed = run_once(builds_, order, stop);
  if (!landed.result)
    return tl::unexpected(std::move(landed.result).error());
  Ended& ended = *landed.result;
  if (!landed.computed && ended.whom == Answers::kItsCaller)
    ended = build_locked(order, stop, Wait::kNo);
  if (whom != nullptr)
    *whom = ended.whom;
  return std::move(ended.fetched);
}

/// Among the threads of this process; a cancelled one answers no other.
CachedBuilds::Flights::Landed CachedBuilds::run_once(Flights& flights,
                                                     const BuildOrder& order,
                                                     const std::stop_token& stop) {
  auto landed = flights.run(order.key, stop, [&]() -> Result<Ended> {
    auto ended = build_locked(order, stop, Wait::kYes);
    if (!ended.fetched && ended.fetched.error().code == ErrorCode::kCancelled)
      return tl::unexpected(std::move(ended.fetched).error());
    return ended;
  });
  if (landed.computed || !landed.result || !landed.result->fetched)
    return landed;
  Fetched& fetched = *landed.result->fetched;
  if (fetched.tier == cache::Tier::kBuild || fetched.tier == cache::Tier::kRemote)
    fetched.tier = cache::Tier::kMemory;
  if (fetched.outcome == FetchOutcome::kCompiled)
    fetched.outcome = FetchOutcome::kWaited;
  return landed;
}

/// Waits for its turn among the processes of this machine, where locks work.
CachedBuilds::Locked CachedBuilds::lock(const BuildOrder& order,
                                        const std::stop_token& stop, Wait wait) {
  // Another thread may have finished between our look-up and our turn.
  if (auto fetched = find_in_memory(order.key))
    return {.ended = Ended{*std::move(fetched)}};
  ObjectPointer appeared;
  const auto look_again = [&] {
    if (std::optional<cache::StoredObject> object =
            cache_.look_again(order.key, order.target))
      appeared = std::make_shared<const cache::StoredObject>(*std::move(object));
    return appeared != nullptr;
  };
  std::optional<Error> failure;
  const auto is_answer = [&](const cache::OwnerRecord& builder) {
    failure = failures_.find(order.key, builder, order.limit);
    return failure.has_value();
  };
  auto acquired = cache_.lock(
      {.key = order.key,
       .look_again = look_again,
       .is_answer = is_answer,
       .wait = wait == Wait::kYes,
       .stop = stop,
       .on_wait = WaitNotice("another process to build " + std::string(order.label),
                             std::make_shared<InProgressFile>(
                                 in_progress_, order.key, order.label, order.target))},
      order.limit);
  switch (acquired.outcome) {
    case cache::LockOutcome::kAppeared:
      return {.ended = Ended{Fetched{.object = std::move(appeared),
                                     .outcome = FetchOutcome::kWaited,
                                     .tier = cache::Tier::kDisk}}};
    case cache::LockOutcome::kAnswered:
      return {.ended = Ended{tl::unexpected(*std::move(failure))}};
    case cache::LockOutcome::kCancelled:
      return {.ended = Ended{fail(ErrorCode::kCancelled,
                                  "stopped while another process was building {}",
                                  order.label)}};
    case cache::LockOutcome::kBypassed:
      log(acquired.waited < WaitNotice::kFirstAfter ? LogLevel::kDebug
                                                    : LogLevel::kWarning,
          {"building ", order.label, " without waiting any longer: ", acquired.reason});
      break;
    case cache::LockOutcome::kHeld:
      break;
  }
  return {.acquired = std::move(acquired)};
}

/// Builds once per key among the processes of this machine.
CachedBuilds::Ended CachedBuilds::build_locked(const BuildOrder& order,
                                               const std::stop_token& stop, Wait wait) {
  Locked locked = lock(order, stop, wait);
  if (locked.ended)
    return *std::move(locked.ended);
  return wait == Wait::kYes && remote_ != nullptr && order.remotes != Remotes::kAsked
             ? ask_and_build(order, stop, locked.acquired)
             : build_here(order, stop, locked.acquired);
}

Result<std::variant<Fetched, BuildTicket>> CachedBuilds::begin(
    const BuildOrder& order, const std::stop_token& stop, Wait wait) {
  Locked locked = lock(order, stop, wait);
  if (locked.ended)
    return KILN_TRY(std::move(locked.ended->fetched));
  cache::OwnedRange& held = locked.acquired.lock;
  if (held.held())
    held.set_phase(cache::Phase::kCompiling);
  InProgressFile shown(in_progress_, order.key, order.label, order.target);
  shown.enter(to_string(cache::Phase::kCompiling));
  if (auto found = KILN_TRY(ask_remote(order, stop))) {
    held.end_build();
    return *std::move(found);
  }
  return BuildTicket(*this, order, std::move(held), std::move(shown));
}

Fetched CachedBuilds::put(ObjectPointer object) {
  Fetched fetched =
      publish({.object = std::move(object), .outcome = FetchOutcome::kCompiled});
  if (remote_ != nullptr && owner_.is_this())
    upload(fetched.object);
  return fetched;
}

Fetched BuildTicket::commit(ObjectPointer object) {
  return builds_->publish_built(
      {.object = std::move(object), .outcome = FetchOutcome::kCompiled}, lock_);
}

void BuildTicket::fail(const Error& error) {
  if (!lock_.held())
    return;
  if (error.from_outside)
    return lock_.end_build(cache::BuildEnd::kKilled);
  builds_->failures_.leave(key_, lock_.record(), error, limit_);
  lock_.end_build(error.code == ErrorCode::kTimeout ? cache::BuildEnd::kTimedOut
                                                    : cache::BuildEnd::kOther);
}

/// The remotes, and a build beside them.
CachedBuilds::Ended CachedBuilds::ask_and_build(const BuildOrder& order,
                                                const std::stop_token& stop,
                                                cache::KeyLock::Acquired& acquired) {
  std::optional<Ended> built;
  const auto build = [&](const std::stop_token& stopped) {
    if (!order.build)
      return Remote::Built::kAnswer;  // the time of the remotes is over
    built = build_here(order, stopped, acquired);
    return kind_of(built->fetched);
  };
  auto found = order.remotes == Remotes::kPatiently
                   ? remote_->get(order.key, order.target, stop)
                   : remote_->get(order.key, order.target, stop, build,
                                  std::chrono::steady_clock::now() - order.begun);
  if (!found && built)
    return *std::move(built);
  if (!found && stop.stop_requested())
    return {stopped_asking(order.label)};
  Ended ended{fail(ErrorCode::kNotFound, "no remote cache has the object")};
  if (found)
    ended.fetched = publish_found(*std::move(found));
  // Whoever waits for this lock takes the object, or asks at the same time as others.
  acquired.lock.end_build();
  return ended;
}

Fetched CachedBuilds::publish_found(remote::Found found) {
  cache_.counters().add(cache::Counter::kHits);
  cache_.counters().add(cache::Counter::kRemoteHits);
  Fetched fetched = publish(
      {.object = std::make_shared<const cache::StoredObject>(std::move(found.object)),
       .outcome = FetchOutcome::kHit,
       .tier = cache::Tier::kRemote,
       .server = std::move(found.server)});
  if (!fetched.not_stored)
    cache_.remember_signers(std::array{made(*fetched.object)}, found.origin);
  return fetched;
}

CachedBuilds::Ended CachedBuilds::build_here(const BuildOrder& order,
                                             const std::stop_token& stop,
                                             cache::KeyLock::Acquired& acquired) {
  cache::OwnedRange& lock = acquired.lock;
  InProgressFile shown(in_progress_, order.key, order.label, order.target);
  bool has_begun = false;
  bool is_queued = true;
  auto begun_at = std::chrono::steady_clock::now();
  const auto on_phase = [&](compile::BuildPhase phase) {
    has_begun = true;
    if (is_queued)
      begun_at = std::chrono::steady_clock::now();
    is_queued = phase == compile::BuildPhase::kQueued;
    const cache::Phase told = lock_phase(phase);
    shown.enter(to_string(told));
    if (lock.held())
      lock.set_phase(told);
  };
  auto built = order.build(stop, on_phase);
  if (!built) {
    Error& error = built.error();
    // Without a phase there was no build, but a refusal that is older than this wait;
    // and a cancelled build is no answer. The next holder of the lock is waited for.
    if (!has_begun || error.code == ErrorCode::kCancelled)
      return {tl::unexpected(std::move(error)), Answers::kThisProcess};
    Answers whom = order.whom ? order.whom(error) : Answers::kEverybody;
    auto end = cache::BuildEnd::kOther;
    if (whom == Answers::kEverybody && error.from_outside && !acquired.is_second_try) {
      // The surroundings of this process, perhaps: one of those who wait tries in its
      // own, and the others wait for that.
      whom = Answers::kThisProcess;
      end = cache::BuildEnd::kKilled;
    } else if (whom == Answers::kEverybody && error.code == ErrorCode::kTimeout) {
      end = cache::BuildEnd::kTimedOut;
    }
    if (whom == Answers::kEverybody && lock.held())
      failures_.leave(order.key, lock.record(), error, order.limit);
    lock.end_build(end);
    return {tl::unexpected(std::move(error)), whom};
  }
  const auto built_in = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begun_at);
  Fetched fetched = publish_built({.object = built->object,
                                   .outcome = FetchOutcome::kCompiled,
                                   .built_in = built_in,
                                   .not_stored = built->mismatch,
                                   .is_as_keyed = !built->mismatch},
                                  lock);
  const Answers whom = fetched.is_as_keyed ? Answers::kEverybody : Answers::kItsCaller;
  return {std::move(fetched), whom};
}

/// Of what is as keyed; ends the build.
Fetched CachedBuilds::publish_built(Fetched fetched, cache::OwnedRange& lock) {
  cache_.counters().add(cache::Counter::kCompiled);
  if (fetched.is_as_keyed) {
    if (lock.held())
      lock.set_phase(cache::Phase::kPublishing);
    fetched = publish(std::move(fetched));
    if (remote_ != nullptr)
      upload(fetched.object);
  }
  lock.end_build();
  return fetched;
}

void CachedBuilds::upload(ObjectPointer object) {
  auto copy = without_source(*object);
  if (!copy)
    return log(LogLevel::kWarning, {"not uploaded: ", copy.error().message});
  if (*copy)
    object = std::make_shared<const cache::StoredObject>(**std::move(copy));
  remote_->upload(std::move(object));
}

Fetched CachedBuilds::publish(Fetched fetched) {
  fetched.not_stored = cache_.publish(*fetched.object).error;
  if (fetched.not_stored && owner_.is_this()) {
    const MutexLock guard(mutex_);
    unstored_.emplace(fetched.object->key(), Fetched{.object = fetched.object,
                                                     .outcome = FetchOutcome::kHit,
                                                     .tier = cache::Tier::kMemory,
                                                     .not_stored = fetched.not_stored});
  }
  return fetched;
}

Result<void> CachedBuilds::remove(const Digest& key) {
  if (remote_ != nullptr)
    remote_->pass_over(key);
  {
    const MutexLock lock(mutex_);
    unstored_.erase(key);
  }
  KILN_TRY(cache_.remove(key));
  return {};
}

void CachedBuilds::count_failure(const Error& error) {
  cache::Counters& counters = cache_.counters();
  switch (error.code) {
    case ErrorCode::kCompileFailed:
      counters.add(cache::Counter::kCompileFailed);
      break;
    case ErrorCode::kWorkerCrashed:
      counters.add(cache::Counter::kWorkerCrashed);
      break;
    case ErrorCode::kTimeout:
    case ErrorCode::kResourceLimit:
      counters.add(cache::Counter::kWorkerKilled);
      break;
    default:
      break;
  }
}

}  // namespace kiln
