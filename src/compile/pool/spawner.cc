#include "compile/pool/spawner.h"

#include <pthread.h>

#include <deque>
#include <exception>
#include <future>
#include <optional>
#include <utility>

#include "util/log.h"
#include "util/mutex.h"
#include "util/quiet_thread.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAbortPoll{20};
constexpr milliseconds kShutdownTimeout{5000};

struct Order {
  WorkerCommand command;
  std::promise<Result<WorkerProcess>> promise;
};

}  // namespace

struct Spawner::Queue {
  Mutex mutex;
  ConditionVariable changed;
  std::deque<Order> orders KILN_GUARDED_BY(mutex);
  bool closing KILN_GUARDED_BY(mutex) = false;
  bool ended KILN_GUARDED_BY(mutex) = false;
  std::thread thread KILN_GUARDED_BY(mutex);
};

Spawner::Spawner() : queue_(std::make_shared<Queue>()) {}

Spawner::~Spawner() {
  std::thread thread;
  bool ended = false;
  {
    const MutexLock lock(queue_->mutex);
    queue_->closing = true;
    queue_->changed.notify_all();
    thread = std::move(queue_->thread);
    const auto deadline = std::chrono::steady_clock::now() + kShutdownTimeout;
    while (thread.joinable() && !queue_->ended) {
      if (!queue_->changed.wait_until(queue_->mutex, deadline))
        break;
    }
    ended = queue_->ended;
  }
  if (!thread.joinable())
    return;
  if (ended) {
    thread.join();
  } else {
    log(LogLevel::kWarning,
        {"the thread that starts compile workers hangs; left behind"});
    thread.detach();
  }
}

void Spawner::run(const std::shared_ptr<Queue>& queue) {
  ::pthread_setname_np(::pthread_self(), "kiln-spawner");
  while (true) {
    std::optional<Order> order;
    {
      const MutexLock lock(queue->mutex);
      while (queue->orders.empty() && !queue->closing)
        queue->changed.wait(queue->mutex);
      if (queue->closing) {
        queue->ended = true;
        queue->changed.notify_all();
        return;
      }
      order = std::move(queue->orders.front());
      queue->orders.pop_front();
    }
    try {
      order->promise.set_value(WorkerProcess::start(order->command));
    } catch (...) {  // out of memory: the waiting caller gets it, not the host
      order->promise.set_exception(std::current_exception());
    }
  }
}

Result<WorkerProcess> Spawner::start(WorkerCommand command,
                                     std::chrono::steady_clock::time_point deadline,
                                     const std::stop_token& stop) {
  Order order{.command = std::move(command), .promise = {}};
  const auto path = order.command.path;
  auto started = order.promise.get_future();
  {
    const MutexLock lock(queue_->mutex);
    if (!queue_->thread.joinable()) {
      auto thread =
          start_quiet_thread([queue = queue_] { run(queue); }, Thread::kJoinable);
      if (!thread)
        return fail(ErrorCode::kUnavailable,
                    "no thread can be started for the start of {}", path.native());
      queue_->thread = *std::move(thread);
    }
    queue_->orders.push_back(std::move(order));
    queue_->changed.notify_all();
  }
  // The thread still carries out an abandoned order. Its worker is killed when the
  // promise that holds the worker is destroyed.
  while (started.wait_for(kAbortPoll) != std::future_status::ready) {
    if (stop.stop_requested())
      return fail(ErrorCode::kCancelled, "cancelled while a compile worker started");
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(ErrorCode::kUnavailable, "the machine does not start {} in time",
                  path.native());
    }
  }
  return started.get();
}

}  // namespace kiln::compile
