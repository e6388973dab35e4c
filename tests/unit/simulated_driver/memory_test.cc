#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/simulated_driver/api.h"

namespace kiln::test {
namespace {

TEST(SimulatedMemory, HoldsWhatIsCopiedIntoIt) {
  const UsedDriver driver;
  const std::string text = "a row of bytes";
  const CUdeviceptr first = value_of(driver.cuMemAlloc, text.size());
  const CUdeviceptr second = value_of(driver.cuMemAllocAsync, text.size(), nullptr);
  EXPECT_EQ(first % 256, 0U);
  ASSERT_EQ(driver.cuMemcpyHtoD(first, text.data(), text.size()), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemcpyDtoDAsync(second, first, text.size(), CU_STREAM_PER_THREAD),
            CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemsetD8(second, 'A', 1), CUDA_SUCCESS);
  std::string back(text.size(), '\0');
  ASSERT_EQ(driver.cuMemcpyDtoHAsync(back.data(), second, text.size(), nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(back, "A row of bytes");
  EXPECT_EQ(driver.cuMemFree(first), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemFreeAsync(second, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_ALLOCATIONS), 0U);
}

TEST(SimulatedMemory, WhatLeavesAnAllocationIsRefused) {
  const UsedDriver driver;
  const CUdeviceptr memory = value_of(driver.cuMemAlloc, 64);
  std::vector<char> buffer(128);
  EXPECT_EQ(driver.cuMemcpyHtoD(memory, buffer.data(), 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemcpyHtoD(memory + 63, buffer.data(), 1), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemcpyHtoD(memory + 64, buffer.data(), 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemcpyDtoH(buffer.data(), memory - 1, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemcpyDtoH(nullptr, memory, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemsetD32(memory, 1, 17), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemsetD32(memory + 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemsetD16(memory, 1, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemFree(memory + 1), CUDA_ERROR_INVALID_VALUE);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the caller does wrong
  EXPECT_EQ(driver.cuMemFreeHost(reinterpret_cast<void*>(memory)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemFree(0), CUDA_SUCCESS);
}

TEST(SimulatedMemory, KnowsWhoseItIs) {
  const DriverUnderTest driver("9.0,8.0");
  driver.use(1);
  const CUcontext context = value_of(driver.cuCtxGetCurrent);
  const CUdeviceptr memory = value_of(driver.cuMemAlloc, 8);
  void* pinned = nullptr;
  ASSERT_EQ(driver.cuMemAllocHost(&pinned, 8), CUDA_SUCCESS);
  const auto ask = [&](CUdeviceptr pointer, CUcontext& owner, unsigned& type,
                       int& device) {
    std::array names{CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, 3> out{&owner, &type, &device};
    EXPECT_EQ(driver.cuPointerGetAttributes(3, names.data(), out.data(), pointer),
              CUDA_SUCCESS);
  };
  CUcontext owner = nullptr;
  unsigned type = 0;
  int device = 0;
  ask(memory + 7, owner, type, device);
  EXPECT_EQ(owner, context);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(device, 1);
  ask(reinterpret_cast<CUdeviceptr>(pinned), owner, type, device);
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  ask(reinterpret_cast<CUdeviceptr>(&driver), owner, type, device);
  EXPECT_EQ(owner, nullptr);
  EXPECT_EQ(type, 0U);
  EXPECT_EQ(device, CU_DEVICE_INVALID);
}

TEST(SimulatedMemory, EndsWhereTheDevicesDoes) {
  const UsedDriver driver;
  std::size_t total = 0;
  std::size_t left = value_of(driver.cuMemGetInfo, &total);
  EXPECT_EQ(left, total);
  CUdeviceptr memory = 0;
  EXPECT_EQ(driver.cuMemAlloc(&memory, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver.cuMemAlloc(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver.cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver.cuMemAlloc(&memory, 1000), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemGetInfo(&left, &total), CUDA_SUCCESS);
  EXPECT_EQ(left, total - 1000);
}

TEST(SimulatedMemory, EventsAndStreamsOfAnotherContextDoNotMix) {
  const UsedDriver driver("9.0,9.0");
  const CUevent start = value_of(driver.cuEventCreate, 0);
  const CUevent end = value_of(driver.cuEventCreate, 0);
  float milliseconds = -1;
  EXPECT_EQ(driver.cuEventElapsedTime(&milliseconds, start, end),
            CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(driver.cuEventRecord(start, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuEventRecord(end, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
  driver.use(1);
  EXPECT_EQ(driver.cuEventRecord(start, nullptr), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(driver.cuEventDestroy(start), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuEventQuery(start), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace kiln::test
