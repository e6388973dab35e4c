// Tells which process a build waits for: in the log, and to `kiln ps`.

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "build/in_progress.h"
#include "cache/owned_range.h"
#include "util/log.h"
#include "util/units.h"

namespace kiln {

/// Logs a warning when called 3 s, 6 s, 12 s, … after it was made. To be called every
/// second or more often, so that a holder's silence is seen.
/// Thread safety: one thread at a time.
class WaitNotice {
 public:
  static constexpr std::chrono::seconds kFirstAfter{3};

  /// "waiting for `what`". `shown`, if there is one, lists the wait.
  explicit WaitNotice(std::string what, std::shared_ptr<InProgressFile> shown = nullptr)
      : what_(std::move(what)), shown_(std::move(shown)) {}

  void operator()(const cache::OwnerRecord& holder) {
    if (shown_ != nullptr)
      shown_->enter(kWaitingPhase);
    const auto now = std::chrono::steady_clock::now();
    if (!seen_.same_owner(holder) || seen_.heartbeat != holder.heartbeat) {
      seen_ = holder;
      seen_at_ = now;
    }
    if (now - began_ < next_)
      return;
    next_ *= 2;
    // Its clock may differ from ours, so its silence is measured here.
    const auto silence = now - seen_at_;
    log(LogLevel::kWarning,
        {"waiting for ", what_, ": process ", std::to_string(holder.pid), " has been ",
         to_string(holder.phase), " for ",
         text(holder.heartbeat - holder.phase_started + silence),
         silence < kSilentAfter
             ? ""
             : ", and has given no sign of life for " + text(silence),
         "; `kiln ps` lists builds and the processes that wait for them"});
  }

 private:
  static constexpr std::chrono::milliseconds kSilentAfter{2500};  // two beats missed

  static std::string text(std::chrono::nanoseconds duration) {
    return format_duration(
        std::chrono::duration_cast<std::chrono::milliseconds>(duration));
  }

  std::string what_;
  std::shared_ptr<InProgressFile> shown_;  // a copy of this is called
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration next_ = kFirstAfter;
  cache::OwnerRecord seen_;  // the last one that was new
  std::chrono::steady_clock::time_point seen_at_ = began_;
};

}  // namespace kiln
