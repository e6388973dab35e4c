#include "tools/remote/remote_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "build/artifact.h"
#include "remote/client/credentials.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using remote::Answer;
using remote::TimePoint;
using remote::Verdict;
using Clock = std::chrono::steady_clock;

/// A server that asks for a longer rest is not waited for.
constexpr std::chrono::seconds kLongestRest{60};
constexpr int kFailuresToGiveUp = 3;

/// False where the same request would end in the same way.
bool is_worth_repeating(const Answer& answer) {
  constexpr std::uint32_t kTimeout = 408;
  constexpr std::uint32_t kTooMany = 429;
  constexpr std::uint32_t kServerErrors = 500;
  return answer.verdict == Verdict::kFailed && !answer.rejected &&
         (answer.end != remote::TransferEnd::kAnswered || answer.status == kTimeout ||
          answer.status == kTooMany || answer.status >= kServerErrors);
}

Answer stopped() {
  return {.verdict = Verdict::kAbandoned, .why = "stopped"};
}

/// An answer that somebody waits for.
struct Waiting {
  Mutex mutex;
  ConditionVariable changed;
  std::optional<Answer> answer KILN_GUARDED_BY(mutex);
};

}  // namespace

Error error_of(const Answer& answer) {
  ErrorCode code = ErrorCode::kUnavailable;
  if (answer.rejected)
    code = answer.rejected == remote::Rejected::kSignature ? ErrorCode::kUntrusted
                                                           : ErrorCode::kCorrupt;
  else if (answer.end == remote::TransferEnd::kBodyFile)
    code = ErrorCode::kIo;
  else if (answer.verdict == Verdict::kAbandoned)
    code = ErrorCode::kCancelled;
  else if (answer.verdict == Verdict::kGood)
    code = answer.why.empty() ? ErrorCode::kNotFound : ErrorCode::kResourceLimit;
  return {code, answer.why.empty() ? "no server has the object" : answer.why};
}

Digest random_key() {
  std::random_device random;
  std::array<std::byte, Digest::kSize> bytes{};
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return Digest(bytes);
}

struct RemoteRun::Peer {
  /// Of requests that read, or of those that write: a server may be good for one alone.
  struct Line {
    int failures = 0;  // in a row, for good
    std::string last_failure;
    bool has_read_again = false;
  };

  explicit Peer(std::unique_ptr<remote::Server> asked) : server(std::move(asked)) {}

  const std::unique_ptr<remote::Server> server;
  std::once_flag is_checked;
  std::optional<Error> no_cache;  // constant once checked
  Mutex mutex;
  TimePoint rest_until KILN_GUARDED_BY(mutex){};
  Line reads KILN_GUARDED_BY(mutex);
  Line writes KILN_GUARDED_BY(mutex);
  int credentials KILN_GUARDED_BY(mutex) = 0;  // counts the times they were read again

  [[nodiscard]] Line& line(remote::Method method) KILN_REQUIRES(mutex) {
    return method == remote::Method::kPut ? writes : reads;
  }
};

Result<std::unique_ptr<RemoteRun>> RemoteRun::open(const Context& context,
                                                   RemoteUse use) {
  RemoteSetup setup = KILN_TRY(from_input(remote_setup(context.config, use)));
  // Wrong input, unless other servers have what they need.
  Result<void> checked;
  for (const remote::ServerAddress& server : setup.servers) {
    checked = remote::check_credentials(setup.files, server);
    if (checked)
      break;
  }
  KILN_TRY(from_input(checked));
  if (setup.servers.empty()) {
    const auto& named = context.config.remote;
    return fail(ErrorCode::kUnavailable,
                named.servers.empty()
                    ? "no remote cache is configured: name its URL by KILN_REMOTE or "
                      "--remote"
                    : fmt::format("each remote cache of {} is switched off, by {} or "
                                  "by its own mode",
                                  named.servers_by.name, named.mode_by.name));
  }
  auto helper = KILN_TRY(remote_helper(context.config));
  return std::unique_ptr<RemoteRun>(
      new RemoteRun(std::move(setup), std::move(helper), context.stop->token()));
}

RemoteRun::RemoteRun(RemoteSetup setup, ChildCommand helper, std::stop_token stop)
    : trusted_(setup.trusted),
      signers_(std::move(setup.signers)),
      stop_(std::move(stop)),
      random_(remote::machine_random()),
      transfers_(std::move(helper)) {
  for (const remote::ServerAddress& address : setup.servers)
    peers_.push_back(std::make_unique<Peer>(std::make_unique<remote::Server>(
        address, setup.files, setup.trusted, check_stored_payload,
        transfers_.of(address.base))));
}

RemoteRun::~RemoteRun() = default;

const remote::ServerAddress& RemoteRun::address(std::size_t server) const {
  return peers_[server]->server->address();
}

const remote::Server& RemoteRun::server(std::size_t server) const {
  return *peers_[server]->server;
}

Answer RemoteRun::ask(std::size_t server, remote::Method method, const Start& start,
                      int most_retries) {
  Peer& peer = *peers_[server];
  for (int retry = 1;; ++retry) {
    TimePoint rest_until;
    int credentials = 0;
    {
      const MutexLock lock(peer.mutex);
      const Peer::Line& line = peer.line(method);
      if (line.failures >= kFailuresToGiveUp)
        return {.verdict = Verdict::kFailed,
                .why = fmt::format("{} is not asked any more, after {} failures in a "
                                   "row; the last: {}",
                                   peer.server->address().base, line.failures,
                                   line.last_failure)};
      rest_until = peer.rest_until;
      credentials = peer.credentials;
    }
    if (!wait_until(rest_until))
      return stopped();
    Answer answer = ask_once(server, start);
    if (answer.verdict == Verdict::kAbandoned)
      return answer;
    if (!repeats(peer, method, credentials, retry > most_retries, answer))
      return answer;
    if (!answer.retry_after &&
        !wait_until(Clock::now() + remote::retry_delay(retry, random_)))
      return stopped();
  }
}

Result<void> RemoteRun::check_is_cache(std::size_t server) {
  Peer& peer = *peers_[server];
  std::call_once(peer.is_checked, [&] {
    const Answer answer =
        ask_once(server, [](remote::Server& asked, remote::Server::Done done) {
          return asked.get(random_key(), {}, std::move(done));
        });
    // What else may be wrong, the next requests say.
    if (answer.object || answer.rejected)
      peer.no_cache =
          Error{ErrorCode::kUnavailable,
                fmt::format(
                    "{} is no cache: it has an object for a key that nobody made ({}). "
                    "Another service answers at this URL, such as a page to log in, "
                    "or the URL is wrong; nothing is sent there",
                    address(server).base, answer.why)};
  });
  return peer.no_cache ? Result<void>(tl::unexpected(*peer.no_cache)) : Result<void>();
}

void RemoteRun::forgive(std::size_t server, remote::Method method) {
  Peer& peer = *peers_[server];
  const MutexLock lock(peer.mutex);
  peer.line(method).failures = 0;
}

/// Notes how a request with those credentials ended; true: once more.
bool RemoteRun::repeats(Peer& peer, remote::Method method, int credentials,
                        bool is_last_try, Answer& answer) {
  const MutexLock lock(peer.mutex);
  Peer::Line& line = peer.line(method);
  if (answer.verdict == Verdict::kGood) {
    line.failures = 0;
    line.has_read_again = false;
    return false;
  }
  bool is_last = is_last_try || !is_worth_repeating(answer);
  if (answer.verdict == Verdict::kDenied && !is_last_try) {
    if (credentials == peer.credentials && !std::exchange(line.has_read_again, true)) {
      peer.server->read_credentials_again();
      ++peer.credentials;
    }
    is_last = credentials == peer.credentials;
  }
  if (answer.retry_after && *answer.retry_after > kLongestRest) {
    answer.why += fmt::format("; the server asks for a pause of {} s",
                              answer.retry_after->count());
    is_last = true;
  } else if (answer.retry_after) {
    // Not all at the same moment.
    const remote::Duration rest = *answer.retry_after;
    peer.rest_until = std::max(
        peer.rest_until, Clock::now() + rest + remote::scaled(rest, random_() / 2));
  }
  if (is_last && !answer.rejected) {
    line.last_failure = answer.why;
    if (++line.failures == kFailuresToGiveUp)
      log(LogLevel::kWarning, {peer.server->address().base,
                               " is given up after three failures: ", answer.why});
  }
  return !is_last;
}

Answer RemoteRun::ask_once(std::size_t server, const Start& start) {
  const auto waiting = std::make_shared<Waiting>();
  remote::Server& asked = *peers_[server]->server;
  {
    const MutexLock lock(running_mutex_);
    while (running_ == kThreads) less_run_.wait(running_mutex_);
    ++running_;
  }
  const std::uint64_t id = start(asked, [waiting](Answer answer) {
    const MutexLock lock(waiting->mutex);
    waiting->answer = std::move(answer);
    waiting->changed.notify_all();
  });
  const std::stop_callback<std::function<void()>> wake(stop_, [waiting] {
    const MutexLock lock(waiting->mutex);
    waiting->changed.notify_all();
  });
  std::optional<Answer> answer;
  {
    const MutexLock lock(waiting->mutex);
    while (!waiting->answer && !stop_.stop_requested())
      waiting->changed.wait(waiting->mutex);
    answer = std::move(waiting->answer);
  }
  {
    const MutexLock lock(running_mutex_);
    --running_;
    less_run_.notify_one();
  }
  if (answer)
    return *std::move(answer);
  asked.cancel(id);
  return stopped();
}

bool RemoteRun::wait_until(TimePoint time) {
  Waiting waiting;
  const std::stop_callback<std::function<void()>> wake(stop_, [&waiting] {
    const MutexLock lock(waiting.mutex);
    waiting.changed.notify_all();
  });
  const MutexLock lock(waiting.mutex);
  while (!stop_.stop_requested() && Clock::now() < time)
    waiting.changed.wait_until(waiting.mutex, time);
  return !stop_.stop_requested();
}

}  // namespace kiln::tools
