// A program of its own: it replaces operator new, so that any allocation can fail.

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <new>
#include <stop_token>

#include "compile/pool/worker_set.h"

namespace {

// This thread's allocations before the one that fails; -1: none fails.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local int allocations_left = -1;

}  // namespace

void* operator new(std::size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0)
    throw std::bad_alloc();
  if (void* const memory = std::malloc(size))
    return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace kiln::compile {
namespace {

/// False if it had no memory.
bool takes_a_permit(WorkerSet& workers) {
  try {
    return workers.acquire_permit({}).has_value();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST(WorkerSetMemory, AnAllocationThatFailsLosesNoPermit) {
  WorkerSet workers(1, {}, {});
  int failed = 0;
  for (bool is_over = false; !is_over;) {
    allocations_left = failed;
    is_over = takes_a_permit(workers);
    allocations_left = -1;
    failed += is_over ? 0 : 1;
    std::stop_source give_up;
    auto next = std::async(std::launch::async, [&] {
      return workers.acquire_permit(give_up.get_token()).has_value();
    });
    if (next.wait_for(std::chrono::seconds(5)) != std::future_status::ready)
      give_up.request_stop();
    ASSERT_TRUE(next.get()) << "lost at allocation " << failed;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace kiln::compile
