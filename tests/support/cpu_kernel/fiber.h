// One CUDA thread's flow of control on a stack of its own, told to AddressSanitizer. It
// knows nothing of kernels.

#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kiln_cpu {

using Stack = std::span<std::byte>;

/// Stacks that are used again by launch after launch, each above a page that faults.
/// Thread safety: none.
class Stacks {
 public:
  static Stacks& instance();

  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// At least `count` of them from now on.
  void reserve(std::size_t count);
  [[nodiscard]] Stack at(std::size_t index) const { return stacks_[index]; }
  /// Whether `address` is in the page below the stack of this number.
  [[nodiscard]] bool overflows(std::size_t index, std::uintptr_t address) const;

 private:
  Stacks() = default;
  ~Stacks() = default;
  std::vector<Stack> stacks_;
};

/// Starts, goes on and ends by resume() from outside. Where it is destroyed before its
/// end, what is on its stack is not: a kernel owns nothing. Thread safety: none.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// The next resume() calls `body`, which outlives the fiber.
  void start(Stack stack, const std::function<void()>& body);

  /// From outside: runs it until it yields or ends.
  void resume();
  [[nodiscard]] bool ended() const { return ended_; }

  /// From inside: returns in the next resume(). If there will be none, also from a
  /// signal handler on another stack.
  void yield();

 private:
  boost::context::fiber inside_;   // where it goes on
  boost::context::fiber outside_;  // where resume() was called
  Stack stack_;
  bool ended_ = true;
  // For AddressSanitizer: the stack outside, and this one's fake frames.
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
};

}  // namespace kiln_cpu
