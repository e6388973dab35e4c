// One block in execution: its threads, whom each waits for, and what went wrong.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kiln/geometry.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/fault_signals.h"
#include "tests/support/cpu_kernel/fiber.h"
#include "tests/support/cpu_kernel/shared_memory.h"
#include "tests/support/cpu_kernel/warp.h"

namespace kiln_cpu {

/// A line of a source file.
struct Site {
  const char* file = "";
  int line = 0;
};
[[nodiscard]] bool operator==(const Site& a, const Site& b);

/// Thread safety: none, but take_fault() is called by a signal handler.
class Block {
 public:
  Block(const kiln::Geometry& geometry, long long number, SharedMemory& shared);

  /// Runs all threads to their end, or until the first problem, which it returns.
  [[nodiscard]] std::optional<std::string> run(Order order, std::mt19937& random,
                                               const std::function<void()>& kernel);

  // By the running thread. Where one of them has failed, leave_if_failed()
  // does not return; nothing on the stack may own memory by then.
  void barrier(const Site& site);
  [[nodiscard]] unsigned collective(const Visit& visit);
  void copy_async(const Copy& copy);
  void copy_commit() { threads_[current_].copies.commit(); }
  void copy_wait(int pending);
  void fail(const std::string& what);
  void leave_if_failed();

  /// Does not return if a thread of the kernel was running and `fault` ends it.
  [[nodiscard]] bool take_fault(const Fault& fault);

  [[nodiscard]] std::size_t current() const { return current_; }
  [[nodiscard]] const kiln::Geometry& geometry() const { return geometry_; }
  [[nodiscard]] long long number() const { return number_; }
  [[nodiscard]] SharedMemory& shared() { return shared_; }

 private:
  enum class State : std::uint8_t { kReady, kAtBarrier, kAtCollective, kEnded };
  struct Thread {
    Fiber fiber;
    State state = State::kReady;
    Site site;  // of the barrier
    CopyQueue copies;
  };

  void run_warp(std::size_t warp, Order order, std::mt19937& random);
  void run_lanes(std::size_t warp, const std::vector<std::size_t>& lanes);
  void step(std::size_t thread);
  [[nodiscard]] bool stopped() const { return problem_ || fault_; }
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] std::size_t count(State state) const;
  [[nodiscard]] std::optional<std::string> release_barrier();
  [[nodiscard]] std::string deadlock() const;
  [[nodiscard]] std::string whereabouts(std::size_t thread) const;

  const kiln::Geometry& geometry_;
  const long long number_;
  SharedMemory& shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::size_t current_ = 0;
  std::optional<std::string> problem_;
  // Written by the signal handler.
  std::optional<Fault> fault_;
  volatile bool in_kernel_ = false;
  volatile std::uint64_t steps_ = 0;
  std::uint64_t steps_at_tick_ = ~std::uint64_t{0};
};

}  // namespace kiln_cpu
