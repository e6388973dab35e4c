// A server as two queues, one after the other: requests, of which it serves so many a
// second, and bytes, for which its link has room. It dies when a test says so.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/simulation/events.h"

namespace kiln::simulation {

enum class Death : std::uint8_t { kNever, kSilent, kRefusing };

struct ServerParameters {
  double requests_per_second = 17'000;  // one nginx worker, 30 KB, measured
  double bytes_per_second = 1.25e9;     // 10 Gbit/s
  std::size_t backlog = 4096;           // connections that wait to be accepted
  Duration round_trip = std::chrono::microseconds(200);
  Death death = Death::kNever;
  Duration dies_after{};
  double slow_share = 0;  // of the replies, which come `slow_by` later
  Duration slow_by = std::chrono::seconds(5);
};

enum class Reply : std::uint8_t { kYes, kNo, kFailed };

/// The limits of a transfer: what a client calls a failure.
struct Limits {
  Duration connect = std::chrono::milliseconds(500);
  Duration silence = std::chrono::seconds(2);  // less than 16 KiB/s for so long
  Duration whole = std::chrono::seconds(10);
};

class Server {
 public:
  Server(Events& events, const ServerParameters& parameters)
      : events_(events), is_(parameters) {}

  /// `done(reply)` is called once, within the limits. `answer` is asked when the
  /// request is served.
  template <typename Answer, typename Done>
  void request(bool connects, std::uint64_t bytes, Answer answer, Done done) {
    ++requests_;
    connections_ += connects ? 1 : 0;
    const TimePoint begin = events_.now();
    const TimePoint arrival = begin + is_.round_trip / 2 * (connects ? 3 : 1);
    const bool is_dead =
        is_.death != Death::kNever && arrival >= TimePoint{} + is_.dies_after;
    const auto waiting =
        static_cast<double>(std::max(requests_done_ - arrival, Duration{}).count()) /
        1e9 * is_.requests_per_second;
    if (is_dead && is_.death == Death::kRefusing)
      return events_.at(begin + is_.round_trip, [done] { done(Reply::kFailed); });
    if (is_dead || (connects && waiting > static_cast<double>(is_.backlog)))
      return events_.at(begin + (connects ? limits_.connect : limits_.silence),
                        [done] { done(Reply::kFailed); });
    requests_done_ =
        std::max(requests_done_, arrival) + seconds(1 / is_.requests_per_second);
    events_.at(requests_done_, [this, begin, bytes, answer, done] {
      const bool has = answer();
      if (has)
        bytes_done_ = std::max(bytes_done_, events_.now()) +
                      seconds(static_cast<double>(bytes) / is_.bytes_per_second);
      TimePoint end = (has ? bytes_done_ : events_.now()) + is_.round_trip / 2;
      Reply reply = has ? Reply::kYes : Reply::kNo;
      Duration limit = limits_.whole;
      if (events_.chance() < is_.slow_share) {
        end += is_.slow_by;
        limit = limits_.silence;  // it sends nothing meanwhile
      }
      if (end > begin + limit) {
        end = begin + limit;
        reply = Reply::kFailed;
      }
      events_.at(end, [done, reply] { done(reply); });
    });
  }

  [[nodiscard]] std::uint64_t requests() const { return requests_; }
  [[nodiscard]] std::uint64_t connections() const { return connections_; }

 private:
  Events& events_;
  const ServerParameters is_;
  const Limits limits_;
  TimePoint requests_done_{};
  TimePoint bytes_done_{};
  std::uint64_t requests_ = 0;
  std::uint64_t connections_ = 0;
};

}  // namespace kiln::simulation
