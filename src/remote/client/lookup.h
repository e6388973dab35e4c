// One get that this machine has no object for: the servers are asked in turn, and a
// build may run beside them, by the rules of Hedge.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "cache/object.h"
#include "codec/digest.h"
#include "remote/client/servers.h"
#include "remote/hedge.h"
#include "util/mutex.h"

namespace kiln::remote {

struct Found {
  cache::StoredObject object;  // has passed every check
  std::string server;          // its label
  cache::Origin origin{};      // of the object
};

/// Thread safety: one thread calls it; the answers come on others. Hold it by a
/// shared_ptr: what runs does, too.
class Lookup : public std::enable_shared_from_this<Lookup> {
 public:
  /// Asks nobody yet. `passed`: of the wait, before this.
  Lookup(std::shared_ptr<Servers> servers, const Digest& key, std::string target,
         Hedge::Build build, Duration passed = {});

  /// Waits until the build is to be started, or for the end. nullopt: `stop` was
  /// requested.
  [[nodiscard]] std::optional<Hedge::Step> wait(const std::stop_token& stop);
  /// Of a build beside it: requested once the object is there.
  [[nodiscard]] std::stop_token found_it() const { return found_it_.get_token(); }
  /// See Hedge; after kWait, wait() again.
  [[nodiscard]] Hedge::Step on_build(Hedge::BuildEnd end);

  /// Cancels what runs, and says so to the breaker. The object, if it has come.
  [[nodiscard]] std::optional<Found> end();

 private:
  struct Running {
    Admitted request;
    std::uint64_t turn;    // of this answer, and of no other
    std::uint64_t id = 0;  // for cancel(); 0: not known yet
  };

  void sleep_until(TimePoint time) KILN_REQUIRES(mutex_);
  void ask(std::size_t from);
  void on_answer(std::uint64_t turn, Answer answer);

  const std::shared_ptr<Servers> servers_;
  const Digest key_;
  const std::string target_;
  const TimePoint ask_at_;
  const bool has_waited_;
  std::stop_source found_it_;
  Mutex mutex_;
  ConditionVariable changed_;
  Hedge hedge_ KILN_GUARDED_BY(mutex_);
  Hedge::Step step_ KILN_GUARDED_BY(mutex_) = Hedge::Step::kWait;
  bool has_asked_ KILN_GUARDED_BY(mutex_) = false;
  bool has_ended_ KILN_GUARDED_BY(mutex_) = false;
  std::uint64_t turns_ KILN_GUARDED_BY(mutex_) = 0;
  std::optional<Running> running_ KILN_GUARDED_BY(mutex_);
  std::optional<Found> found_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::remote
