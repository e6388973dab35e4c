#include "tests/support/cpu_kernel/fault_signals.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstddef>

namespace kiln_cpu {
namespace {

constexpr std::array<int, 3> kSignals{SIGSEGV, SIGBUS, SIGVTALRM};
constexpr std::size_t kHandlerStackBytes = std::size_t{64} << 10;

// A signal handler reaches nothing else.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
FaultSignals::Take taker = nullptr;  // null while there are no FaultSignals
pid_t takers_thread = 0;
std::array<struct sigaction, kSignals.size()> old_actions;
alignas(16) std::array<std::byte, kHandlerStackBytes> handler_stack;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

Fault::Kind kind_of([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;  // of a page fault's error code
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return (registers[REG_ERR] & kWriteBit) != 0 ? Fault::Kind::kWrite
                                               : Fault::Kind::kRead;
#else
  return Fault::Kind::kAccess;
#endif
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const bool is_takers = taker != nullptr && ::gettid() == takers_thread;
  if (signal == SIGVTALRM) {
    // The clock is the process's, and its signal comes to any thread.
    if (is_takers)
      taker({Fault::Kind::kClock, 0});
    else if (taker != nullptr)
      ::syscall(SYS_tgkill, ::getpid(), takers_thread, SIGVTALRM);
    return;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (!is_takers || !taker({kind_of(context), address})) {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      if (kSignals[i] == signal) {
        ::sigaction(signal, &old_actions[i], nullptr);  // the access happens again
      }
    }
  }
}

void set_timer(std::chrono::milliseconds tick) {
  itimerval timer{};
  timer.it_interval.tv_sec = tick.count() / 1000;
  timer.it_interval.tv_usec = tick.count() % 1000 * 1000;
  timer.it_value = timer.it_interval;
  ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

}  // namespace

FaultSignals::FaultSignals(Take take, std::chrono::milliseconds tick) {
  taker = take;
  takers_thread = ::gettid();
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  ::sigaltstack(&stack, &old_stack_);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  // The handler may never return: what it blocks would stay blocked.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &action, &old_actions[i]);
  }
  set_timer(tick);
}

FaultSignals::~FaultSignals() {
  set_timer(std::chrono::milliseconds(0));
  taker = nullptr;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    // The clock's last signal may still be on its way through another thread, and by
    // default ends the process.
    if (kSignals[i] != SIGVTALRM || old_actions[i].sa_handler != SIG_DFL) {
      ::sigaction(kSignals[i], &old_actions[i], nullptr);
    }
  }
  ::sigaltstack(&old_stack_, nullptr);
}

}  // namespace kiln_cpu
