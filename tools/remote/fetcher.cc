#include "tools/remote/fetcher.h"

#include <algorithm>
#include <array>
#include <memory>
#include <queue>
#include <utility>

#include "remote/pacing.h"
#include "tools/in_threads.h"
#include "util/mutex.h"

namespace kiln::tools {
namespace {

using remote::Answer;
using remote::Method;
using remote::Server;
using remote::TimePoint;
using remote::Verdict;
using Clock = std::chrono::steady_clock;

/// Thread safety: in_threads() calls it.
class Fetcher {
 public:
  Fetcher(RemoteRun& run, cache::Cache& cache, std::span<const Wanted> wanted,
          Progress& progress)
      : run_(run),
        cache_(cache),
        wanted_(wanted),
        progress_(progress),
        report_{std::vector<Pulled>(wanted.size(), Pulled::kNotReached),
                std::vector<std::size_t>(wanted.size()), TransferTotals(run)},
        failures_(wanted.size()) {}

  FetchReport run(std::chrono::milliseconds wait) {
    in_threads(kStoringThreads, wanted_.size(), run_.stop(), [&](std::size_t i) {
      if (has_given_up())
        return;
      progress_.start(wanted_[i].label);
      const auto here = cache_.inspect(wanted_[i].key);
      end(i, here && *here ? Pulled::kWasHere : fetch(i));
    });
    poll_missing(Clock::now() + wait);
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Pulled outcome = report_.outcomes[i];
      if (outcome == Pulled::kMissing)
        progress_.finish(wanted_[i].label, std::nullopt);
      if (outcome == Pulled::kMissing || outcome == Pulled::kFailed)
        report_failure(i);
    }
    return std::move(report_);
  }

 private:
  /// An object that is asked for again.
  struct Due {
    TimePoint at;
    std::size_t object;
    std::shared_ptr<remote::Poll> poll;
    bool operator>(const Due& other) const { return at > other.at; }
  };

  struct Failure {
    std::size_t server;
    Error error;
  };

  void poll_missing(TimePoint deadline) {
    std::priority_queue<Due, std::vector<Due>, std::greater<>> dues;
    const auto add = [&](std::size_t i, std::shared_ptr<remote::Poll> poll) {
      if (const auto at = poll->next(Clock::now()))
        dues.push({*at, i, std::move(poll)});
    };
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      if (outcome(i) == Pulled::kMissing)
        add(i, std::make_shared<remote::Poll>(deadline, run_.random()));
    }
    // Those whose time has come, together; then the next.
    while (!dues.empty() && !has_given_up() && run_.wait_until(dues.top().at)) {
      std::vector<Due> now;
      for (; !dues.empty() && dues.top().at <= Clock::now(); dues.pop())
        now.push_back(dues.top());
      in_threads(kStoringThreads, now.size(), run_.stop(), [&](std::size_t at) {
        const std::size_t i = now[at].object;
        if (is_somewhere(i))
          end(i, fetch(i));
      });
      for (Due& due : now) {
        if (outcome(due.object) == Pulled::kMissing)
          add(due.object, std::move(due.poll));
      }
    }
  }

  [[nodiscard]] Pulled outcome(std::size_t i) {
    const MutexLock lock(mutex_);
    return report_.outcomes[i];
  }

  [[nodiscard]] bool has_given_up() {
    const MutexLock lock(mutex_);
    return report_.totals.lost.has_given_up();
  }

  void end(std::size_t i, Pulled outcome) {
    const MutexLock lock(mutex_);
    const bool is_lost = failures_[i] && failures_[i]->error.code == ErrorCode::kIo;
    if (is_lost && report_.totals.lost.has_given_up()) {  // others have said it
      failures_[i].reset();
      outcome = Pulled::kNotReached;
    } else if (is_lost || outcome == Pulled::kFetched) {
      report_.totals.lost.count(is_lost);
    }
    report_.outcomes[i] = outcome;
    if (outcome != Pulled::kMissing)
      progress_.finish(wanted_[i].label, std::nullopt);
  }

  /// True, too, if no server can be asked any more: fetch() then says so.
  bool is_somewhere(std::size_t i) {
    std::size_t failed = 0;
    for (std::size_t server = 0; server < run_.server_count(); ++server) {
      const Answer answer =
          run_.ask(server, Method::kHead, [&](Server& asked, Server::Done done) {
            return asked.head(wanted_[i].key, std::move(done));
          });
      if (answer.is_there)
        return true;
      failed +=
          answer.verdict == Verdict::kFailed || answer.verdict == Verdict::kDenied;
    }
    return failed == run_.server_count();
  }

  Pulled fetch(std::size_t i) {
    std::size_t missing = 0;
    forget_failure(i);
    for (std::size_t server = 0; server < run_.server_count(); ++server) {
      Answer answer =
          run_.ask(server, Method::kGet, [&](Server& asked, Server::Done done) {
            return asked.get(
                wanted_[i].key, {}, std::move(done), kObjectLimits,
                [held = held_](std::uint64_t bytes) { return held.take(bytes); });
          });
      if (answer.object) {
        forget_failure(i);
        return store(i, server, answer);
      }
      if (answer.verdict == Verdict::kGood)
        ++missing;
      else if (!run_.stop().stop_requested())
        note_failure(i, server, error_of(answer));
    }
    // It may yet come to one that has been asked in vain.
    return missing > 0 ? Pulled::kMissing : Pulled::kFailed;
  }

  Pulled store(std::size_t i, std::size_t server, const Answer& answer) {
    const cache::PublishResult published = cache_.publish(*answer.object);
    if (published.error) {
      note_failure(i, server, *published.error);
      return Pulled::kFailed;
    }
    cache_.remember_signers(std::array{made(*answer.object)},
                            {answer.signers, run_.address(server).base});
    const MutexLock lock(mutex_);
    report_.servers[i] = server;
    ++report_.totals.servers[server].moved;
    report_.totals.bytes += answer.bytes;
    return Pulled::kFetched;
  }

  void forget_failure(std::size_t i) {
    const MutexLock lock(mutex_);
    failures_[i].reset();
  }

  /// The last one is reported, if the object does not come after all.
  void note_failure(std::size_t i, std::size_t server, Error error) {
    const MutexLock lock(mutex_);
    failures_[i] = Failure{server, std::move(error)};
  }

  void report_failure(std::size_t i) KILN_REQUIRES(mutex_) {
    if (!failures_[i])
      return;
    auto& [server, error] = *failures_[i];
    report_.outcomes[i] = Pulled::kFailed;
    ++report_.totals.servers[server].failed;
    report_.totals.add_problem(wanted_[i], std::move(error), run_.address(server).base);
  }

  RemoteRun& run_;
  cache::Cache& cache_;
  const std::span<const Wanted> wanted_;
  Progress& progress_;
  // In objects that have come and are not stored yet.
  const HeldBytes held_{kMostHeld};
  Mutex mutex_;
  FetchReport report_ KILN_GUARDED_BY(mutex_);
  std::vector<std::optional<Failure>> failures_ KILN_GUARDED_BY(mutex_);
};

}  // namespace

std::uint64_t FetchReport::count(Pulled outcome) const {
  return static_cast<std::uint64_t>(std::ranges::count(outcomes, outcome));
}

FetchReport fetch_objects(RemoteRun& run, cache::Cache& cache,
                          std::span<const Wanted> wanted,
                          std::chrono::milliseconds wait, Progress& progress) {
  return Fetcher(run, cache, wanted, progress).run(wait);
}

}  // namespace kiln::tools
