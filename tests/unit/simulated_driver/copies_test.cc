#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/unit/simulated_driver/api.h"

namespace kiln::test {
namespace {

TEST(SimulatedPinnedMemory, IsTheHostsAndTheDevicesAtOneAddress) {
  const UsedDriver driver;
  void* pinned = nullptr;
  EXPECT_EQ(driver.cuMemHostAlloc(&pinned, 64, 8), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver.cuMemHostAlloc(&pinned, 64, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  EXPECT_EQ(value_of(driver.cuMemHostGetFlags, pinned),
            unsigned{CU_MEMHOSTALLOC_PORTABLE});
  CUdeviceptr device = value_of(driver.cuMemHostGetDevicePointer, pinned, 0);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(pinned));
  EXPECT_EQ(driver.cuMemFreeHost(pinned), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemHostGetDevicePointer(&device, pinned, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedPinnedMemory, CanBeTheProgramsOwn) {
  const UsedDriver driver;
  std::vector<char> own(256);
  const auto at = reinterpret_cast<CUdeviceptr>(own.data());
  EXPECT_EQ(driver.cuMemsetD8(at, 1, 4), CUDA_ERROR_INVALID_VALUE) << "not yet";
  ASSERT_EQ(driver.cuMemHostRegister(own.data(), own.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemHostRegister(own.data() + 8, 8, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(driver.cuMemsetD8(at, 7, 4), CUDA_SUCCESS);
  EXPECT_EQ(own[3], 7);
  EXPECT_EQ(driver.cuMemFreeHost(own.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemHostUnregister(own.data()), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemHostUnregister(own.data()),
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(own[3], 7) << "still there";
}

TEST(SimulatedManagedMemory, IsOfBoth) {
  const UsedDriver driver;
  CUdeviceptr memory = 0;
  EXPECT_EQ(driver.cuMemAllocManaged(&memory, 64, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver.cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  unsigned is_managed = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  EXPECT_EQ(driver.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                         memory),
            CUDA_SUCCESS);
  EXPECT_EQ(is_managed, 1U);
  EXPECT_EQ(driver.cuMemGetAddressRange(&start, &size, memory + 63), CUDA_SUCCESS);
  EXPECT_EQ(start, memory);
  EXPECT_EQ(size, 64U);
  EXPECT_EQ(driver.cuMemGetAddressRange(&start, &size, memory + 64),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(
      driver.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, 1),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemFree(memory), CUDA_SUCCESS);
}

TEST(SimulatedCopies, OfRowsTakeThemFromWhereTheyAre) {
  const UsedDriver driver;
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  EXPECT_EQ(driver.cuMemAllocPitch(&memory, &pitch, 12, 3, 5),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver.cuMemAllocPitch(&memory, &pitch, 12, 3, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch % 512, 0U);
  ASSERT_EQ(driver.cuMemsetD2D32(memory, pitch, 9, 3, 3), CUDA_SUCCESS);
  std::array<std::uint32_t, 6> host{1, 2, 3, 4, 5, 6};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = 8;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = pitch;
  copy.dstXInBytes = 4;
  copy.WidthInBytes = 8;
  copy.Height = 3;
  ASSERT_EQ(driver.cuMemcpy2D(&copy), CUDA_SUCCESS);
  std::array<std::uint32_t, 3> row{};
  ASSERT_EQ(driver.cuMemcpyDtoH(row.data(), memory + 2 * pitch, 12), CUDA_SUCCESS);
  EXPECT_THAT(row, testing::ElementsAre(9, 5, 6));
  copy.Height = 4;
  EXPECT_EQ(driver.cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE) << "beyond the end";
  copy.Height = 3;
  copy.srcPitch = 7;
  EXPECT_EQ(driver.cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE) << "rows overlap";
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(driver.cuMemcpy2D(&copy), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(driver.cuMemcpy2D(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedCopies, OfSlicesTakeABoxOutOfABox) {
  const UsedDriver driver;
  const CUdeviceptr memory = value_of(driver.cuMemAlloc, 4 * 3 * 2);
  std::array<unsigned char, 24> box{};
  std::iota(box.begin(), box.end(), static_cast<unsigned char>(0));
  ASSERT_EQ(driver.cuMemcpyHtoD(memory, box.data(), box.size()), CUDA_SUCCESS);
  std::array<unsigned char, 8> part{};
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = memory;
  copy.srcPitch = 4;
  copy.srcHeight = 3;
  copy.srcXInBytes = 1;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = part.data();
  copy.dstPitch = 2;
  copy.dstHeight = 2;
  copy.WidthInBytes = 2;
  copy.Height = 2;
  copy.Depth = 2;
  ASSERT_EQ(driver.cuMemcpy3D(&copy), CUDA_SUCCESS);
  EXPECT_THAT(part, testing::ElementsAre(5, 6, 9, 10, 17, 18, 21, 22));
}

}  // namespace
}  // namespace kiln::test
