#include "remote/client/transfers.h"

#include <fcntl.h>
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
constexpr std::chrono::hours kLongestSleep{1};
constexpr milliseconds kLookWithoutPipe{50};  // nobody can wake the thread
constexpr Clock::time_point kNever = Clock::time_point::max();

TransferReply no_helper(std::uint64_t id, const std::string& why) {
  return {.id = id, .end = TransferEnd::kHelper, .error = why};
}

Result<ChildProcess> start_helper(const ChildCommand& command,
                                  const ExchangeLimits& limits) {
  auto process = KILN_TRY(ChildProcess::start(command));
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

  explicit State(ChildCommand helper) : command(std::move(helper)) {
    // A pipe, since all eventfds are one file to fstat().
    std::array<int, 2> ends{-1, -1};
    std::ignore = ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK);
    wake = UniqueFd(ends[0]);
    waker = UniqueFd(ends[1]);
  }

  void rouse() const {
    if (waker.is_ours())
      std::ignore = ::write(waker.get(), "", 1);  // EAGAIN: it is awake
  }

  /// Starts the thread if there is none yet. The new id; 0 if there is no thread.
  std::uint64_t add(Pending& transfer, const std::function<void()>& body) {
    const MutexLock lock(mutex);
    if (!thread.joinable() && !closing.stop_requested()) {
      if (auto started = start_quiet_thread(body, Thread::kJoinable))
        thread = *std::move(started);
    }
    if (!thread.joinable())
      return 0;
    const std::uint64_t id = transfer.request.id = next_id++;
    transfer.set_deadline();
    if (!transfer.is_held)
      untold.push_back(id);
    pending.emplace(id, std::move(transfer));
    rouse();
    return id;
  }

  /// Null: it has ended, or is not held.
  [[nodiscard]] Pending* held(std::uint64_t id) KILN_REQUIRES(mutex) {
    const auto found = pending.find(id);
    return found != pending.end() && found->second.is_held ? &found->second : nullptr;
  }

  /// Empty: it has ended.
  [[nodiscard]] Done take(std::uint64_t id) {
    const MutexLock lock(mutex);
    auto taken = pending.extract(id);
    return taken.empty() ? Done() : std::move(taken.mapped().done);
  }

  // Of the thread alone.

  /// Starts the helper when there is something to send, sends, and hands out replies.
  void run() {
    ::pthread_setname_np(::pthread_self(), "kiln-remote");
    while (!closing.stop_requested()) {
      if (const auto sent = send_waiting(); !sent) {
        lose(sent.error().message);
        continue;
      }
      if (const auto received = sleep() ? receive_one() : Result<void>(); !received)
        lose(received.error().message);
      expire();
      if (const auto alive = watch(); !alive)
        lose(alive.error().message);
    }
    process.reset();
  }

  [[nodiscard]] Result<void> send_waiting() {
    while (const auto next = next_message()) {
      const auto& [message, file] = *next;
      const auto* const request = std::get_if<TransferRequest>(&message);
      if (!process && request == nullptr)
        continue;
      if (!process) {
        if (starts >= kMostStarts)
          return fail(ErrorCode::kUnavailable, "kiln-remote has ended three times");
        ++starts;
        process = KILN_TRY(start_helper(command, limits()));
        heard();
      }
      const bool has_file = request != nullptr && has_body(*request);
      const int body = has_file ? file.descriptor() : -1;
      if (!has_file || body != -1)
        KILN_TRY(process->send(encode(message), limits(), body));
      else if (const auto done = take(request->id))  // it is now a file of the host's
        done(no_helper(request->id, "this program has closed its file"));
    }
    return {};
  }

  /// A request, or the cancel of one that is not pending any more.
  [[nodiscard]] std::optional<std::pair<ToHelper, BodyFile>> next_message() {
    const MutexLock lock(mutex);
    if (untold.empty())
      return std::nullopt;
    const std::uint64_t id = untold.front();
    untold.pop_front();
    const auto found = pending.find(id);
    if (found == pending.end())
      return std::pair(ToHelper(TransferCancel{id}), BodyFile());
    found->second.is_sent = true;
    return std::pair(ToHelper(found->second.request), found->second.body);
  }

  /// Until there is something to do. True: the helper has said something.
  [[nodiscard]] bool sleep() {
    const bool can_wake = wake.is_ours() && waker.is_ours();
    const auto left = std::clamp<Clock::duration>(
        std::min(first_deadline(), watch_at()) - Clock::now(), Clock::duration(0),
        can_wake ? Clock::duration(kLongestSleep) : kLookWithoutPipe);
    std::array<pollfd, 2> fds{
        {{.fd = can_wake ? wake.get() : -1, .events = POLLIN, .revents = 0},
         {.fd = process ? process->socket() : -1, .events = POLLIN, .revents = 0}}};
    std::ignore =
        ::poll(fds.data(), fds.size(),
               static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
    if (fds[0].revents != 0 && wake.is_ours()) {
      std::array<std::byte, 64> roused{};
      std::ignore = ::read(wake.get(), roused.data(), roused.size());
    }
    return fds[1].revents != 0;
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
      done(std::move(*reply));
    return {};
  }

  void heard() {
    heard_at = Clock::now();
    pinged_at.reset();
    is_suspect = false;
  }

  /// When the helper is to be asked for a sign of life, or has given none.
  [[nodiscard]] Clock::time_point watch_at() {
    if (!process)
      return kNever;
    if (pinged_at)
      return *pinged_at + kSignLimit;
    if (is_suspect)
      return heard_at;
    return first_deadline() == kNever ? kNever : heard_at + kSilence;
  }

  [[nodiscard]] Result<void> watch() {
    const auto now = Clock::now();
    if (now < watch_at())
      return {};
    if (pinged_at)
      return fail(ErrorCode::kTimeout, "kiln-remote gives no answer");
    pinged_at = now;
    return process->send(encode(ToHelper(Ping{})), limits());
  }

  [[nodiscard]] ExchangeLimits limits() const {
    return {.deadline = Clock::now() + kFrameLimit, .stop = closing.get_token()};
  }

  /// Where a helper was lost, another does what it has left. Without one all fail, but
  /// those that are held: whoever gets their credentials is told of it.
  void lose(const std::string& why) {
    const bool had_helper = process.has_value();
    process.reset();  // killed
    if (closing.stop_requested())
      return;
    fail_those(why, [&](const Pending& each) {
      return !each.is_held && (!had_helper || (each.is_sent && each.is_repeated));
    });
    const MutexLock lock(mutex);
    for (auto& [id, transfer] : pending) {
      if (!transfer.is_sent)
        continue;
      transfer.is_sent = false;
      transfer.is_repeated = true;
      transfer.set_deadline();
      untold.push_back(id);
    }
  }

  /// Those whose time is over fail. The others go on.
  void expire() {
    const auto now = Clock::now();
    if (fail_those("kiln-remote gives no answer",
                   [&](const Pending& each) { return each.deadline <= now; }))
      is_suspect = true;
  }

  /// True if there are any.
  template <typename Condition>
  bool fail_those(const std::string& why, const Condition& is_one) {
    std::vector<std::pair<TransferReply, Done>> failed;
    {
      const MutexLock lock(mutex);
      std::erase_if(pending, [&](auto& each) {
        auto& [id, transfer] = each;
        if (!is_one(transfer))
          return false;
        failed.emplace_back(no_helper(id, why), std::move(transfer.done));
        if (transfer.is_held)
          failed.back().first = {
              .id = id, .end = TransferEnd::kAnswered, .error = transfer.refused};
        return true;
      });
      for (const auto& [reply, done] : failed) untold.push_back(reply.id);
    }
    for (auto& [reply, done] : failed) done(std::move(reply));
    return !failed.empty();
  }

  /// Of the requests that wait; kNever if there is none.
  [[nodiscard]] Clock::time_point first_deadline() {
    const MutexLock lock(mutex);
    Clock::time_point first = kNever;
    for (const auto& [id, each] : pending) first = std::min(first, each.deadline);
    return first;
  }

  const ChildCommand command;
  KeptFd wake;   // constant after construction, as the next
  KeptFd waker;  // its other end
  std::stop_source closing;
  Mutex mutex;
  std::unordered_map<std::uint64_t, Pending> pending KILN_GUARDED_BY(mutex);
  /// What the helper has to be told of: a request, or that it has ended here.
  std::deque<std::uint64_t> untold KILN_GUARDED_BY(mutex);
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
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();  // destroyed by a Done
  else if (thread.joinable())
    thread.join();
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
  State::Pending transfer{.request = std::move(request),
                          .body = std::move(body),
                          .done = std::move(done),
                          .is_held = is_held};
  const std::uint64_t id = state_->add(transfer, [state = state_] { state->run(); });
  if (id == 0)
    transfer.done(no_helper(0, "no thread can be started"));
  return id;
}

void Transfers::send(std::uint64_t id, const Credentials& credentials) {
  const MutexLock lock(state_->mutex);
  State::Pending* const transfer = state_->held(id);
  if (transfer == nullptr)
    return;
  transfer->request.credentials = credentials;
  transfer->is_held = false;
  transfer->set_deadline();
  state_->untold.push_back(id);
  state_->rouse();
}

void Transfers::refuse(std::uint64_t id, const std::string& why) {
  const MutexLock lock(state_->mutex);
  if (State::Pending* const transfer = state_->held(id); transfer != nullptr) {
    transfer->refused = why;
    transfer->deadline = Clock::now();
    state_->rouse();
  }
}

void Transfers::cancel(std::uint64_t id) {
  if (!owner_.is_this() || !state_->take(id))
    return;
  const MutexLock lock(state_->mutex);
  state_->untold.push_back(id);
  state_->rouse();
}

}  // namespace kiln::remote
