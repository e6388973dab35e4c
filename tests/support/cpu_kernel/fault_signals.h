// Faults and endless loops of the code that runs on one thread, as calls.

#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>

namespace kiln_cpu {

struct Fault {
  enum class Kind : std::uint8_t { kRead, kWrite, kAccess, kClock };
  Kind kind;  // kAccess: a read or a write, this processor does not say which
  std::uintptr_t address;  // 0 for kClock, and where the processor does not know
};

/// While one lives, `take` is called on the thread that made it, on a stack of its own,
/// for SIGSEGV and SIGBUS of that thread, and with kClock each time this process has
/// used `tick` of processor time. A `take` that returns false after an access lets the
/// fault be what it was before, as is a fault of another thread; one that does not
/// return has left for a stack that lives on. One at a time. Thread safety: none.
class FaultSignals {
 public:
  using Take = bool (*)(const Fault&);
  FaultSignals(Take take, std::chrono::milliseconds tick);
  FaultSignals(const FaultSignals&) = delete;
  FaultSignals& operator=(const FaultSignals&) = delete;
  ~FaultSignals();

 private:
  stack_t old_stack_{};
};

}  // namespace kiln_cpu
