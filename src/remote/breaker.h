// When a server is asked, and when it is left alone. One breaker a server and process.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "remote/policy.h"

namespace kiln::remote {

/// How a request ended, as far as it says something of the server.
enum class Verdict : std::uint8_t {
  kGood,       // an answer: an object that passes its checks, or 404
  kFailed,     // connect, TLS, time-out, 5xx, 429, or overtaken by the build
  kBadBody,    // an object that fails a check: of its key, and not of the server
  kDenied,     // 401, 403, or what else needs other credentials or another mode
  kAbandoned,  // the caller stopped: it says nothing
};

/// Closed: every request may go. Three failures in a row open it: for 30 s, twice that
/// if the next probe fails, and so on to 10 min, each ± 50 %, so that a fleet does not
/// come back at once. Then it is half open: one request, the probe, may go, and its end
/// closes the breaker or opens it again. So a server that is dead costs a thread at
/// most three waits an opening; requests that run side by side when it opens may fail
/// as well, and change nothing any more. Bad bodies open it, too, once there are so
/// many in a row that the server seems to have nothing else. Thread safety: none; its
/// owner has a lock.
class Breaker {
 public:
  static constexpr int kFailuresToOpen = 3;
  static constexpr int kBadBodiesToOpen = 32;
  static constexpr std::chrono::seconds kFirstOpening{30};
  static constexpr std::chrono::seconds kLongestOpening{600};
  /// A server may ask for a longer rest (Retry-After), but not for ever.
  static constexpr std::chrono::seconds kLongestRest{3600};
  /// A probe that nobody has reported by then was lost: a request takes 10 s at most.
  static constexpr std::chrono::seconds kProbeLimit{15};

  explicit Breaker(Random random) : random_(std::move(random)) {}

  /// Leave for one request, to be given back with how it ended.
  class Leave {
    friend class Breaker;
    explicit Leave(std::uint64_t period) : period_(period) {}
    std::uint64_t period_;
  };

  /// nullopt: the server is left alone now.
  [[nodiscard]] std::optional<Leave> admit(TimePoint now);

  enum class Advice : std::uint8_t {
    kNone,
    kReadCredentials,  // once: they may have been renewed
    kWarn,             // it has opened, for the first time since it worked
  };
  /// `retry_after` is what the server has asked for, if it has. The end of a request
  /// from before the last change of state changes nothing.
  [[nodiscard]] Advice report(const Leave& leave, TimePoint now, Verdict verdict,
                              std::optional<std::chrono::seconds> retry_after = {});

  /// For metrics: open, or half open.
  [[nodiscard]] bool is_open() const { return state_ != State::kClosed; }
  /// When the next probe may go, of an open one.
  [[nodiscard]] TimePoint open_until() const { return until_; }

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kProbing };

  void change(State state);
  [[nodiscard]] Advice open(TimePoint now, Duration rest);
  [[nodiscard]] Advice open_for_failures(TimePoint now);

  Random random_;
  State state_ = State::kClosed;
  std::uint64_t period_ = 0;  // counts the changes of state
  int failures_ = 0;          // in a row, while closed
  int bad_bodies_ = 0;        // as the next, in a row without a good end between them
  int openings_ = 0;
  bool has_read_credentials_ = false;
  bool has_warned_ = false;
  TimePoint until_{};  // open: of this state; probing: of the probe
};

}  // namespace kiln::remote
