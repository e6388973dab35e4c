// For the thread sanitizer, and for the answers that must not depend on who else asks.

#include <array>
#include <atomic>
#include <thread>

#include "tests/support/in_threads.h"
#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

constexpr int kRounds = 200;

void count_up(const kiln_simulated_launch* launch, void** parameters, void* user) {
  **static_cast<int**>(parameters[0]) += 1;
  static_cast<std::atomic<int>*>(user)[launch->device].fetch_add(1);
}

void load_and_launch(const DriverUnderTest& driver, int device, const char* arch) {
  CUcontext context = nullptr;
  ASSERT_EQ(driver.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  const Bytes image = cubin_for(arch);
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_EQ(driver.cuCtxPushCurrent(context), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
    CUfunction function = nullptr;
    ASSERT_EQ(driver.cuModuleGetFunction(&function, module, "k"), CUDA_SUCCESS);
    CUdeviceptr memory = 0;
    ASSERT_EQ(driver.cuMemAlloc(&memory, sizeof(int)), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuMemsetD32(memory, 41, 1), CUDA_SUCCESS);
    std::array<void*, 1> parameters{&memory};
    ASSERT_EQ(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0,
                                    CU_STREAM_PER_THREAD, parameters.data(), nullptr),
              CUDA_SUCCESS);
    int result = 0;
    ASSERT_EQ(driver.cuMemcpyDtoH(&result, memory, sizeof(int)), CUDA_SUCCESS);
    EXPECT_EQ(result, 42);
    ASSERT_EQ(driver.cuMemFree(memory), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuModuleUnload(module), CUDA_SUCCESS);
    CUcontext popped = nullptr;
    ASSERT_EQ(driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, context);
  }
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

TEST(SimulatedThreads, OnTwoDevicesDoNotMeet) {
  const DriverUnderTest driver("9.0,8.0");
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  std::array<std::atomic<int>, 2> runs{};
  driver.register_kernel("k", &count_up, runs.data());
  std::thread first([&] { load_and_launch(driver, 0, "sm_90a"); });
  std::thread second([&] { load_and_launch(driver, 1, "sm_80"); });
  std::thread third([&] { load_and_launch(driver, 1, "sm_80"); });
  first.join();
  second.join();
  third.join();
  EXPECT_EQ(runs[0], kRounds);
  EXPECT_EQ(runs[1], 2 * kRounds);
  EXPECT_EQ(driver.loads_on(0), static_cast<unsigned long>(kRounds));
  EXPECT_EQ(driver.launches().size(), 3U * kRounds);
  for (const auto what : {KILN_SIMULATED_CONTEXTS, KILN_SIMULATED_MODULES,
                          KILN_SIMULATED_ALLOCATIONS, KILN_SIMULATED_STREAMS})
    EXPECT_EQ(driver.alive(what), 0U);
}

TEST(SimulatedThreads, MayBeginAndControlTheDriverAtTheSameTime) {
  const DriverUnderTest driver("9.0,8.0");
  test::in_threads(4, [&driver](int i) {
    EXPECT_EQ(driver.cuInit(0), CUDA_SUCCESS);
    for (int round = 0; round < kRounds; ++round) {
      CUcontext context = nullptr;
      EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, i % 2), CUDA_SUCCESS);
      EXPECT_EQ(driver.inject("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
      std::ignore = driver.calls("cuInit");
      EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(i % 2), CUDA_SUCCESS);
    }
  });
  EXPECT_EQ(driver.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

}  // namespace
}  // namespace kiln::test
