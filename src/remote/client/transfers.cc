#include "remote/client/transfers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kiln/version.h"
#include "util/kept_fd.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/quiet_thread.h"
#include "util/this_library.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Beyond its own limit: a helper that has not answered by then hangs.
constexpr milliseconds kGrace{1000};
/// Of the helper's first frame, and of a frame that has begun.
constexpr std::chrono::seconds kFrameLimit{5};
/// A helper that ends without one good reply so often in a row is not started again.
constexpr int kMostStarts = 3;
constexpr milliseconds kLookWithoutPipe{50};

TransferReply no_helper(std::uint64_t id, const std::string& why) {
  return {.id = id, .end = TransferEnd::kHelper, .error = why};
}

Result<ChildProcess> start_helper(const ChildCommand& command,
                                  const std::stop_token& stop) {
  auto process = KILN_TRY(ChildProcess::start(command));
  const ExchangeLimits limits{.deadline = Clock::now() + kFrameLimit, .stop = stop};
  const auto message =
      KILN_TRY(decode_from_helper(KILN_TRY(process.receive_frame(limits))));
  const auto* const hello = std::get_if<HelperHello>(&message);
  if (hello == nullptr || hello->build_id != build_id())
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("{} and {} come from different builds; install both from one build",
                    command.path.native(), this_library().native()));
  return process;
}

}  // namespace

struct Transfers::State {
  struct Pending {
    Done done;
    Clock::time_point deadline;
  };

  explicit State(ChildCommand helper) : command(std::move(helper)) {
    // A pipe, since all eventfds are one file to fstat().
    std::array<int, 2> ends{-1, -1};
    std::ignore = ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK);
    wake = UniqueFd(ends[0]);
    waker = UniqueFd(ends[1]);
  }

  void rouse() const {
    constexpr std::byte kOne{1};
    if (waker.is_ours())
      std::ignore = ::write(waker.get(), &kOne, 1);  // EAGAIN: it is awake
  }

  /// Starts the thread if there is none yet. A new id; 0 if there is no thread.
  [[nodiscard]] std::uint64_t add_thread(const std::function<void()>& body) {
    const MutexLock lock(mutex);
    if (!thread.joinable()) {
      if (auto started = start_quiet_thread(body, Thread::kJoinable))
        thread = *std::move(started);
    }
    return thread.joinable() ? next_id++ : 0;
  }

  [[nodiscard]] std::optional<Bytes> take_outgoing() {
    const MutexLock lock(mutex);
    if (outgoing.empty())
      return std::nullopt;
    Bytes frame = std::move(outgoing.front());
    outgoing.pop_front();
    return frame;
  }

  // Of the thread alone.

  [[nodiscard]] Result<void> send_waiting() {
    while (const auto frame = take_outgoing()) {
      if (!process) {
        if (starts >= kMostStarts)
          return fail(ErrorCode::kUnavailable, "kiln-remote has ended three times");
        ++starts;
        process = KILN_TRY(start_helper(command, closing.get_token()));
      }
      KILN_TRY(process->send(*frame, limits()));
    }
    return {};
  }

  [[nodiscard]] Result<void> receive_one() {
    auto message =
        KILN_TRY(decode_from_helper(KILN_TRY(process->receive_frame(limits()))));
    auto* const reply = std::get_if<TransferReply>(&message);
    if (reply == nullptr || reply->end == TransferEnd::kHelper)
      return corrupt_message("it is no reply");
    starts = 0;
    if (const auto done = take(reply->id))
      (*done)(std::move(*reply));
    return {};
  }

  [[nodiscard]] ExchangeLimits limits() const {
    return {.deadline = Clock::now() + kFrameLimit, .stop = closing.get_token()};
  }

  void lose(const std::string& why) {
    process.reset();  // killed
    if (!closing.stop_requested())
      fail_all(why);
  }

  [[nodiscard]] std::optional<Done> take(std::uint64_t id) {
    const MutexLock lock(mutex);
    const auto found = pending.find(id);
    if (found == pending.end())
      return std::nullopt;
    std::optional<Done> done = std::move(found->second.done);
    pending.erase(found);
    return done;
  }

  void fail_all(const std::string& why) {
    std::unordered_map<std::uint64_t, Pending> lost;
    {
      const MutexLock lock(mutex);
      lost.swap(pending);
      outgoing.clear();
    }
    for (auto& [id, each] : lost) each.done(no_helper(id, why));
  }

  /// Of the requests that wait; nullopt if there is none.
  [[nodiscard]] std::optional<Clock::time_point> first_deadline() {
    const MutexLock lock(mutex);
    std::optional<Clock::time_point> first;
    for (const auto& [id, each] : pending)
      first = std::min(first.value_or(each.deadline), each.deadline);
    return first;
  }

  const ChildCommand command;
  KeptFd wake;   // constant after construction, as the next
  KeptFd waker;  // its other end
  std::stop_source closing;
  Mutex mutex;
  std::unordered_map<std::uint64_t, Pending> pending KILN_GUARDED_BY(mutex);
  std::deque<Bytes> outgoing KILN_GUARDED_BY(mutex);
  std::uint64_t next_id KILN_GUARDED_BY(mutex) = 1;
  std::thread thread KILN_GUARDED_BY(mutex);
  // Of the thread alone.
  std::optional<ChildProcess> process;
  int starts = 0;  // since the last good reply
};

Transfers::Transfers(ChildCommand helper)
    : state_(std::make_shared<State>(std::move(helper))) {}

Transfers::~Transfers() {
  // In a forked child the thread, which is not there, keeps the state for ever.
  if (!owner_.is_this())
    return;
  state_->closing.request_stop();
  state_->rouse();
  std::thread thread;
  {
    const MutexLock lock(state_->mutex);
    thread = std::move(state_->thread);
  }
  if (!thread.joinable())
    return;
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();  // destroyed by a Done
  else
    thread.join();
}

std::uint64_t Transfers::start(TransferRequest request, Done done) {
  if (!owner_.is_this()) {
    done(no_helper(0, "this process was forked"));
    return 0;
  }
  const auto deadline = Clock::now() + request.limits.whole + kGrace;
  const std::uint64_t id = state_->add_thread([state = state_] { run(state); });
  if (id == 0) {
    done(no_helper(0, "no thread can be started"));
    return 0;
  }
  request.id = id;
  {
    const MutexLock lock(state_->mutex);
    state_->pending.emplace(id, State::Pending{std::move(done), deadline});
    state_->outgoing.push_back(encode(ToHelper(request)));
  }
  state_->rouse();
  return id;
}

void Transfers::cancel(std::uint64_t id) {
  if (!owner_.is_this() || !state_->take(id))
    return;
  {
    const MutexLock lock(state_->mutex);
    state_->outgoing.push_back(encode(ToHelper(TransferCancel{id})));
  }
  state_->rouse();
}

/// Starts the helper when there is something to send, sends, and hands out replies.
void Transfers::run(const std::shared_ptr<State>& state) {
  ::pthread_setname_np(::pthread_self(), "kiln-remote");
  while (!state->closing.stop_requested()) {
    if (const auto sent = state->send_waiting(); !sent) {
      state->lose(sent.error().message);
      continue;
    }
    const auto deadline = state->first_deadline();
    // Without the pipe nobody can wake this thread.
    const bool can_wake = state->wake.is_ours() && state->waker.is_ours();
    int timeout = can_wake ? -1 : static_cast<int>(kLookWithoutPipe.count());
    if (deadline) {
      const auto left = static_cast<int>(std::max<std::int64_t>(
          std::chrono::ceil<milliseconds>(*deadline - Clock::now()).count(), 0));
      timeout = can_wake ? left : std::min(left, timeout);
    }
    std::array<pollfd, 2> fds{
        {{.fd = can_wake ? state->wake.get() : -1, .events = POLLIN, .revents = 0},
         {.fd = state->process ? state->process->socket() : -1,
          .events = POLLIN,
          .revents = 0}}};
    std::ignore = ::poll(fds.data(), fds.size(), timeout);
    if (fds[0].revents != 0 && state->wake.is_ours()) {
      std::array<std::byte, 64> roused{};
      std::ignore = ::read(state->wake.get(), roused.data(), roused.size());
    }
    if (fds[1].revents != 0) {
      if (const auto received = state->receive_one(); !received)
        state->lose(received.error().message);
    } else if (deadline && Clock::now() >= *deadline) {
      state->lose("kiln-remote gives no answer");
    }
  }
  state->process.reset();
}

}  // namespace kiln::remote
