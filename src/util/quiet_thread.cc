#include "util/quiet_thread.h"

#include <pthread.h>

#include <csignal>
#include <exception>
#include <utility>

#include "util/log.h"

namespace kiln {

std::optional<std::thread> start_quiet_thread(std::function<void()> body, Thread how) {
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);  // a new thread inherits the mask
  std::optional<std::thread> thread;
  try {
    thread.emplace(std::move(body));
    if (how == Thread::kDetached)
      thread->detach();
  } catch (const std::exception& error) {  // no thread, or no memory for one
    log(LogLevel::kWarning, {"cannot start a thread: ", error.what()});
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace kiln
