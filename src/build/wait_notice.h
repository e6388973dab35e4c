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

/// Logs a warning when called 3 s, 6 s, 12 s, … after it was made.
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
    if (std::chrono::steady_clock::now() - began_ < next_)
      return;
    next_ *= 2;
    log(LogLevel::kWarning,
        {"waiting for ", what_, ": process ", std::to_string(holder.pid), " has been ",
         to_string(holder.phase), " for ",
         format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(
             holder.heartbeat - holder.phase_started))});
  }

 private:
  std::string what_;
  std::shared_ptr<InProgressFile> shown_;  // a copy of this is called
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration next_ = kFirstAfter;
};

}  // namespace kiln
