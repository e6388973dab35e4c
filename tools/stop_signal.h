// SIGINT and SIGTERM as a stop_token: running builds are stopped, what was done is
// still printed, and the exit status says which signal it was.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "kiln/result.h"
#include "util/unique_fd.h"

namespace kiln::tools {

/// From a signal on: whoever builds ends what it does, and prints what was done.
inline constexpr std::chrono::seconds kLookerPatience{2};
inline constexpr std::chrono::seconds kDoerPatience{30};

/// While an object lives, SIGINT and SIGTERM request a stop instead of ending the
/// program; a second signal ends it at once, and so does the first one after
/// `patience`: a call on a dead mount does not see it. Construct it before any thread
/// is started: every thread inherits the blocked signals, and one reads them from a
/// signalfd. Thread safety: all methods may be called from any thread.
class StopSignal {
 public:
  /// Errors: kIo, kUnavailable (no thread can be started).
  [[nodiscard]] static Result<std::unique_ptr<StopSignal>> install(
      std::chrono::seconds patience);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  /// Once it is known what the verb does.
  void set_patience(std::chrono::seconds patience) { patience_ = patience; }
  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }
  /// 130 after SIGINT, 143 after SIGTERM, nullopt while neither has come.
  [[nodiscard]] std::optional<int> exit_code() const;

 private:
  StopSignal(UniqueFd signals, UniqueFd wake, std::chrono::seconds patience);
  void watch();

  std::atomic<std::chrono::seconds> patience_;
  UniqueFd signals_;  // a signalfd
  UniqueFd wake_;     // an eventfd: written once, by the destructor
  std::stop_source source_;
  std::atomic<int> signal_{0};
  std::thread thread_;  // not joinable if it could not be started
};

}  // namespace kiln::tools
