#include "remote/client/transfers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
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
/// A helper that answers nothing for so long is asked for a sign of life.
constexpr std::chrono::seconds kSilence{2};
/// Without one it is killed.
constexpr std::chrono::seconds kSignLimit{5};
/// A helper that ends without one good reply so often in a row is not started again.
constexpr int kMostStarts = 3;
constexpr milliseconds kLookWithoutPipe{50};
constexpr std::chrono::minutes kLongestSleep{1};

TransferReply no_helper(std::uint64_t id, const std::string& why) {
  return {.id = id, .end = TransferEnd::kHelper, .error = why};
}

TransferReply no_credentials(std::uint64_t id, const std::string& why) {
  return {.id = id, .end = TransferEnd::kAnswered, .error = why};
}

Result<ChildProcess> start_helper(const ChildCommand& command,
                                  const std::stop_token& stop) {
  auto process = KILN_TRY(ChildProcess::start(command));
  const ExchangeLimits limits{.deadline = Clock::now() + kFrameLimit, .stop = stop};
  const auto message =
      KILN_TRY(decode_from_helper(KILN_TRY(process.receive_frame(limits))));
  const auto* const hello = std::get_if<HelperHello>(&message);
  if (hello == nullptr || hello->build_id != build_id())
    return fail(ErrorCode::kUnavailable,
                "{} and {} come from different builds; install both from one build",
                command.path.native(), this_library().native());
  return process;
}

}  // namespace

struct Transfers::State {
  struct Pending {
    TransferRequest request;
    BodyFile body;
    Done done;
    Clock::time_point deadline = {};
    bool is_sent = false;
    bool is_repeated = false;  // to another helper
    bool is_held = false;
    std::string refused = "its credentials have not come in time";  // while it is held

    void set_deadline() {
      const TransferLimits& limits = request.limits;
      deadline = Clock::now() + kGrace +
                 (is_held ? limits.whole : whole_limit(limits, limits.most_bytes));
    }
  };

  /// What waits to be sent.
  struct Outgoing {
    std::uint64_t id;
    Bytes frame;
    std::optional<BodyFile> body{};
    bool starts_helper = true;
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
    if (!thread.joinable() && !closing.stop_requested()) {
      if (auto started = start_quiet_thread(body, Thread::kJoinable))
        thread = *std::move(started);
    }
    return thread.joinable() ? next_id++ : 0;
  }

  void add(std::uint64_t id, Pending transfer) {
    const MutexLock lock(mutex);
    transfer.request.id = id;
    transfer.set_deadline();
    if (!transfer.is_held)
      requests.push_back(id);
    pending.emplace(id, std::move(transfer));
  }

  /// Null: it has ended, or is not held.
  [[nodiscard]] Pending* held(std::uint64_t id) KILN_REQUIRES(mutex) {
    const auto found = pending.find(id);
    return found != pending.end() && found->second.is_held ? &found->second : nullptr;
  }

  void send(std::uint64_t id, const Credentials& credentials) {
    const MutexLock lock(mutex);
    Pending* const transfer = held(id);
    if (transfer == nullptr)
      return;
    transfer->request.credentials = credentials;
    transfer->is_held = false;
    transfer->set_deadline();
    requests.push_back(id);
  }

  void refuse(std::uint64_t id, const std::string& why) {
    const MutexLock lock(mutex);
    if (Pending* const transfer = held(id); transfer != nullptr) {
      transfer->refused = why;
      transfer->deadline = Clock::now();
    }
  }

  void cancel(std::uint64_t id) {
    const MutexLock lock(mutex);
    cancels.push_back(id);
  }

  [[nodiscard]] std::optional<Outgoing> take_outgoing() {
    const MutexLock lock(mutex);
    if (!cancels.empty()) {
      const std::uint64_t id = cancels.front();
      cancels.pop_front();
      return Outgoing{.id = id,
                      .frame = encode(ToHelper(TransferCancel{id})),
                      .starts_helper = false};
    }
    while (!requests.empty()) {
      const auto found = pending.find(requests.front());
      requests.pop_front();
      if (found == pending.end())
        continue;  // cancelled
      Pending& transfer = found->second;
      transfer.is_sent = true;
      return Outgoing{.id = transfer.request.id,
                      .frame = encode(ToHelper(transfer.request)),
                      .body = has_body(transfer.request) ? std::optional(transfer.body)
                                                         : std::nullopt};
    }
    return std::nullopt;
  }

  // Of the thread alone.

  [[nodiscard]] Result<void> send_waiting() {
    while (const auto message = take_outgoing()) {
      if (!process && !message->starts_helper)
        continue;
      if (!process) {
        if (starts >= kMostStarts)
          return fail(ErrorCode::kUnavailable, "kiln-remote has ended three times");
        ++starts;
        process = KILN_TRY(start_helper(command, closing.get_token()));
        heard();
      }
      // One that the host has closed is now a file of the host's.
      const int body = message->body ? message->body->descriptor() : -1;
      if (message->body && body == -1) {
        if (const auto done = take(message->id))
          (*done)(no_helper(message->id, "this program has closed its file"));
        continue;
      }
      KILN_TRY(process->send(message->frame, limits(), body));
    }
    return {};
  }

  [[nodiscard]] Result<void> receive_one() {
    auto message =
        KILN_TRY(decode_from_helper(KILN_TRY(process->receive_frame(limits()))));
    heard();
    if (std::holds_alternative<Ping>(message))
      return {};
    auto* const reply = std::get_if<TransferReply>(&message);
    if (reply == nullptr)
      return corrupt_message("it is no reply");
    starts = 0;
    if (const auto done = take(reply->id))
      (*done)(std::move(*reply));
    return {};
  }

  void heard() {
    heard_at = Clock::now();
    pinged_at.reset();
    is_suspect = false;
  }

  /// Asks for a sign of life where one is missed. Errors: there is none.
  [[nodiscard]] Result<void> watch() {
    const auto now = Clock::now();
    if (!process)
      return {};
    if (pinged_at)
      return now - *pinged_at < kSignLimit
                 ? Result<void>()
                 : fail(ErrorCode::kTimeout, "kiln-remote gives no answer");
    if (!is_suspect && (!first_deadline() || now - heard_at < kSilence))
      return {};
    pinged_at = now;
    return process->send(encode(ToHelper(Ping{})), limits());
  }

  /// When expire() or watch() has something to do; nullopt: never.
  [[nodiscard]] std::optional<Clock::time_point> next_look() {
    const auto deadline = first_deadline();
    if (!process || (!deadline && !pinged_at))
      return deadline;
    const auto look = pinged_at ? *pinged_at + kSignLimit : heard_at + kSilence;
    return std::min(deadline.value_or(look), look);
  }

  [[nodiscard]] ExchangeLimits limits() const {
    return {.deadline = Clock::now() + kFrameLimit, .stop = closing.get_token()};
  }

  /// Where a helper was lost, another does what it has left. Without one all fail.
  void lose(const std::string& why) {
    const bool had_helper = process.has_value();
    process.reset();  // killed
    if (closing.stop_requested())
      return;
    decide(why, [&](const Pending& transfer) {
      if (transfer.is_held)
        return Fate::kStays;  // whoever gets its credentials is told of it
      if (!had_helper || (transfer.is_sent && transfer.is_repeated))
        return Fate::kFails;
      return transfer.is_sent ? Fate::kIsRepeated : Fate::kStays;
    });
  }

  /// Those whose time is over fail. The others go on.
  void expire() {
    const auto now = Clock::now();
    const bool has_failed =
        decide("kiln-remote gives no answer", [&](const Pending& each) {
          return each.deadline <= now ? Fate::kFails : Fate::kStays;
        });
    is_suspect = is_suspect || has_failed;
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

  enum class Fate : std::uint8_t { kStays, kFails, kIsRepeated };
  /// True if any fails.
  template <typename Judge>
  bool decide(const std::string& why, const Judge& judge) {
    std::vector<std::pair<TransferReply, Done>> failed;
    {
      const MutexLock lock(mutex);
      for (auto each = pending.begin(); each != pending.end();) {
        const auto next = std::next(each);
        auto& [id, transfer] = *each;
        switch (judge(transfer)) {
          case Fate::kStays:
            break;
          case Fate::kIsRepeated:
            transfer.is_sent = false;
            transfer.is_repeated = true;
            transfer.set_deadline();
            requests.push_back(id);
            break;
          case Fate::kFails:
            failed.emplace_back(transfer.is_held ? no_credentials(id, transfer.refused)
                                                 : no_helper(id, why),
                                std::move(transfer.done));
            cancels.push_back(id);
            pending.erase(each);
        }
        each = next;
      }
    }
    for (auto& [reply, done] : failed) done(std::move(reply));
    return !failed.empty();
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
  std::deque<std::uint64_t> requests KILN_GUARDED_BY(mutex);  // not sent yet
  std::deque<std::uint64_t> cancels KILN_GUARDED_BY(mutex);
  std::uint64_t next_id KILN_GUARDED_BY(mutex) = 1;
  std::thread thread KILN_GUARDED_BY(mutex);
  // Of the thread alone.
  std::optional<ChildProcess> process;
  int starts = 0;  // since the last good reply
  Clock::time_point heard_at;
  std::optional<Clock::time_point> pinged_at;  // without an answer yet
  bool is_suspect = false;                     // it is late
};

Transfers::Transfers(ChildCommand helper)
    : state_(std::make_shared<State>(std::move(helper))) {}

Transfers::Transfers(std::shared_ptr<State> state)
    : state_(std::move(state)), is_view_(true) {}

std::unique_ptr<Transfers> Transfers::view() const {
  return std::unique_ptr<Transfers>(new Transfers(state_));
}

Transfers::~Transfers() {
  // In a forked child the thread, which is not there, keeps the state for ever.
  if (is_view_ || !owner_.is_this())
    return;
  state_->closing.request_stop();
  state_->rouse();
  std::thread thread;
  {
    const MutexLock lock(state_->mutex);
    thread = std::move(state_->thread);
  }
  if (thread.joinable()) {
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();  // destroyed by a Done
    else
      thread.join();
  }
  // A Done may have the credentials that have a view of this state.
  decltype(State::pending) left;
  const MutexLock lock(state_->mutex);
  left.swap(state_->pending);
}

std::uint64_t Transfers::add(TransferRequest request, BodyFile body, Done done,
                             bool is_held) {
  if (!owner_.is_this()) {
    done(no_helper(0, "this process was forked"));
    return 0;
  }
  const std::uint64_t id = state_->add_thread([state = state_] { run(state); });
  if (id == 0) {
    done(no_helper(0, "no thread can be started"));
    return 0;
  }
  state_->add(id, {.request = std::move(request),
                   .body = std::move(body),
                   .done = std::move(done),
                   .is_held = is_held});
  state_->rouse();
  return id;
}

std::uint64_t Transfers::start(TransferRequest request, BodyFile body, Done done) {
  return add(std::move(request), std::move(body), std::move(done), false);
}

std::uint64_t Transfers::hold(TransferRequest request, BodyFile body, Done done) {
  return add(std::move(request), std::move(body), std::move(done), true);
}

void Transfers::send(std::uint64_t id, const Credentials& credentials) {
  state_->send(id, credentials);
  state_->rouse();
}

void Transfers::refuse(std::uint64_t id, const std::string& why) {
  state_->refuse(id, why);
  state_->rouse();
}

void Transfers::cancel(std::uint64_t id) {
  if (!owner_.is_this() || !state_->take(id))
    return;
  state_->cancel(id);
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
    const auto look_at = state->next_look();
    // Without the pipe nobody can wake this thread.
    const bool can_wake = state->wake.is_ours() && state->waker.is_ours();
    int timeout = can_wake ? -1 : static_cast<int>(kLookWithoutPipe.count());
    if (look_at) {
      const auto left = static_cast<int>(std::clamp<std::int64_t>(
          std::chrono::ceil<milliseconds>(*look_at - Clock::now()).count(), 0,
          milliseconds(kLongestSleep).count()));
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
    }
    state->expire();
    if (const auto alive = state->watch(); !alive)
      state->lose(alive.error().message);
  }
  state->process.reset();
}

}  // namespace kiln::remote
