#include "tools/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <tuple>
#include <utility>

#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

constexpr int kExitBase = 128;  // the shell's convention: 128 + signal number

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Result<std::unique_ptr<StopSignal>> StopSignal::install(std::chrono::seconds patience) {
  const sigset_t set = stop_signals();
  if (const int err = ::pthread_sigmask(SIG_BLOCK, &set, nullptr); err != 0)
    return posix_error("pthread_sigmask", "SIGINT, SIGTERM", err);
  UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC));
  if (!signals)
    return posix_error("signalfd", "SIGINT, SIGTERM", errno);
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake)
    return posix_error("eventfd", "stop", errno);
  std::unique_ptr<StopSignal> stop(
      new StopSignal(std::move(signals), std::move(wake), patience));
  try {
    stop->thread_ = std::thread([watching = stop.get()] { watching->watch(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kUnavailable,
                "cannot start a thread: {}; are there limits on processes (ulimit -u, "
                "pids.max), or is this `unshare --pid` without --fork?",
                error.code().message());
  }
  return stop;
}

StopSignal::StopSignal(UniqueFd signals, UniqueFd wake, std::chrono::seconds patience)
    : patience_(patience), signals_(std::move(signals)), wake_(std::move(wake)) {}

StopSignal::~StopSignal() {
  const std::uint64_t one = 1;
  // An eventfd at zero always takes a one.
  std::ignore = ::write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable())
    thread_.join();
  const sigset_t set = stop_signals();
  std::ignore = ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // valid by construction
}

void StopSignal::watch() {
  std::array<pollfd, 2> fds{{{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  using std::chrono::milliseconds;
  int limit = -1;  // none before the first signal
  while (true) {
    const int ready = ::poll(fds.data(), fds.size(), limit);
    if (ready == 0)
      ::_exit(kExitBase + signal_.load());
    if (ready < 0 && errno != EINTR)
      return;
    if (fds[1].revents != 0)
      return;
    signalfd_siginfo info{};
    if (fds[0].revents == 0 ||
        ::read(signals_.get(), &info, sizeof(info)) != sizeof(info))
      continue;
    const int number = static_cast<int>(info.ssi_signo);
    if (signal_.exchange(number) != 0)
      ::_exit(kExitBase + number);  // second signal: end at once
    source_.request_stop();
    limit = static_cast<int>(milliseconds(patience_.load()).count());
  }
}

std::optional<int> StopSignal::exit_code() const {
  const int number = signal_.load();
  return number == 0 ? std::nullopt : std::optional<int>(kExitBase + number);
}

}  // namespace kiln::tools
