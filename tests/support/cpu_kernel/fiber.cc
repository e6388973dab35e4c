#include "tests/support/cpu_kernel/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define KILN_CPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KILN_CPU_ASAN 1
#endif
#endif
#ifdef KILN_CPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace kiln_cpu {
namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = std::size_t{64} << 10;

std::size_t guard_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Told before the stack changes. `fake` keeps this stack's fake frames; null drops
/// them.
void leave_stack([[maybe_unused]] void** fake, [[maybe_unused]] const void* bottom,
                 [[maybe_unused]] std::size_t size) {
#ifdef KILN_CPU_ASAN
  __sanitizer_start_switch_fiber(fake, bottom, size);
#endif
}

/// Told first on the new stack; where control came from, if anybody asks.
void enter_stack([[maybe_unused]] void* fake, [[maybe_unused]] const void** bottom,
                 [[maybe_unused]] std::size_t* size) {
#ifdef KILN_CPU_ASAN
  __sanitizer_finish_switch_fiber(fake, bottom, size);
#endif
}

/// The stack's next user finds no variables of the last one.
void forget_frames([[maybe_unused]] Stack stack) {
#ifdef KILN_CPU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack.data(), stack.size());
#endif
}

/// Fibers that will not go on. To destroy one would unwind it, and one that a signal
/// handler left cannot be.
std::vector<context::fiber>& abandoned() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const fibers = new std::vector<context::fiber>();
  return *fibers;
}

/// Boost asks for a stack; ours is there already.
struct GivenStack {
  Stack stack;
  [[nodiscard]] context::stack_context allocate() const {
    context::stack_context given;
    given.size = stack.size();
    given.sp = stack.data() + stack.size();
    return given;
  }
  void deallocate(context::stack_context& /*stack*/) const {}
};

}  // namespace

Stacks& Stacks::instance() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const stacks = new Stacks();
  return *stacks;
}

void Stacks::reserve(std::size_t count) {
  while (stacks_.size() < count) {
    const std::size_t guard = guard_bytes();
    void* const map = ::mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || ::mprotect(map, guard, PROT_NONE) != 0) {
      std::perror("a fiber's stack");
      std::abort();
    }
    stacks_.emplace_back(static_cast<std::byte*>(map) + guard, kStackBytes);
  }
}

bool Stacks::overflows(std::size_t index, std::uintptr_t address) const {
  const auto bottom = reinterpret_cast<std::uintptr_t>(stacks_[index].data());
  return bottom - guard_bytes() <= address && address < bottom;
}

Fiber::~Fiber() {
  if (!ended_) {
    abandoned().push_back(std::move(inside_));
    forget_frames(stack_);
  }
}

void Fiber::start(Stack stack, const std::function<void()>& body) {
  stack_ = stack;
  ended_ = false;
  inside_ = context::fiber(std::allocator_arg, GivenStack{stack},
                           [this, &body](context::fiber&& outside) {
                             enter_stack(nullptr, &outside_bottom_, &outside_size_);
                             outside_ = std::move(outside);
                             body();
                             ended_ = true;
                             leave_stack(nullptr, outside_bottom_, outside_size_);
                             return std::move(outside_);
                           });
}

void Fiber::resume() {
  void* fake = nullptr;
  leave_stack(&fake, stack_.data(), stack_.size());
  inside_ = std::move(inside_).resume();
  enter_stack(fake, nullptr, nullptr);
}

void Fiber::yield() {
  void* fake = nullptr;
  leave_stack(&fake, outside_bottom_, outside_size_);
  outside_ = std::move(outside_).resume();
  enter_stack(fake, &outside_bottom_, &outside_size_);
}

}  // namespace kiln_cpu
