#include <array>
#include <cstdint>

#include "tests/unit/simulated_driver/api.h"

namespace kiln::test {
namespace {

class SimulatedPools : public testing::Test {
 protected:
  SimulatedPools() { driver_.use(); }

  [[nodiscard]] CUmemoryPool make(std::size_t most_bytes = 0) const {
    CUmemPoolProps asked{};
    asked.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.location = device(0);
    asked.maxSize = most_bytes;
    const CUmemoryPool pool = value_of(driver_.cuMemPoolCreate, &asked);
    return pool;
  }

  static CUmemLocation device(int ordinal) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = ordinal;
    return location;
  }

  [[nodiscard]] std::uint64_t figure(CUmemoryPool pool,
                                     CUmemPool_attribute which) const {
    std::uint64_t value = 0;
    EXPECT_EQ(driver_.cuMemPoolGetAttribute(pool, which, &value), CUDA_SUCCESS);
    return value;
  }

  DriverUnderTest driver_{"9.0,9.0"};
};

TEST_F(SimulatedPools, OfADeviceAreTheDefaultOneUntilAnotherIsSet) {
  const CUmemoryPool first = value_of(driver_.cuDeviceGetDefaultMemPool, 0);
  CUmemoryPool current = value_of(driver_.cuDeviceGetMemPool, 0);
  EXPECT_EQ(first, current);
  EXPECT_EQ(driver_.cuMemPoolDestroy(first), CUDA_ERROR_INVALID_VALUE);
  const CUmemoryPool own = make();
  EXPECT_EQ(driver_.cuDeviceSetMemPool(1, own), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver_.cuDeviceSetMemPool(0, own), CUDA_SUCCESS);
  const CUdeviceptr memory = value_of(driver_.cuMemAllocAsync, 64, nullptr);
  CUmemoryPool its = nullptr;
  EXPECT_EQ(
      driver_.cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory),
      CUDA_SUCCESS);
  EXPECT_EQ(its, own);
  ASSERT_EQ(driver_.cuMemPoolDestroy(own), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, first);
  EXPECT_EQ(driver_.cuMemFreeAsync(memory, nullptr), CUDA_SUCCESS) << "after its pool";
  EXPECT_EQ(driver_.cuDeviceGetMemPool(&current, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(SimulatedPools, CountWhatTheyGaveAndWhatTheyKept) {
  const CUmemoryPool pool = make(1000);
  CUdeviceptr memory = 0;
  EXPECT_EQ(driver_.cuMemAllocFromPoolAsync(&memory, 1001, pool, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  std::uint64_t threshold = 500;
  ASSERT_EQ(driver_.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                          &threshold),
            CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuMemAllocFromPoolAsync(&memory, 900, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 900U);
  ASSERT_EQ(driver_.cuMemFreeAsync(memory, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0U);
  EXPECT_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 900U);
  EXPECT_EQ(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 500U);
  ASSERT_EQ(driver_.cuMemPoolTrimTo(pool, 100), CUDA_SUCCESS);
  EXPECT_EQ(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 100U);
  std::uint64_t high = 1;
  EXPECT_EQ(driver_.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high),
            CUDA_ERROR_INVALID_VALUE);
  high = 0;
  EXPECT_EQ(driver_.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high),
            CUDA_SUCCESS);
  EXPECT_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0U);
  int reuse = 0;
  EXPECT_EQ(driver_.cuMemPoolSetAttribute(
                pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse),
            CUDA_SUCCESS);
}

TEST_F(SimulatedPools, AreReachedByWhomeverTheyAreOpenedFor) {
  const CUmemoryPool pool = make();
  const auto access = [&](int ordinal) {
    CUmemLocation location = device(ordinal);
    const CUmemAccess_flags flags =
        value_of(driver_.cuMemPoolGetAccess, pool, &location);
    return flags;
  };
  EXPECT_EQ(access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(access(1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc asked{device(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(driver_.cuMemPoolSetAccess(pool, &asked, 1), CUDA_SUCCESS);
  EXPECT_EQ(access(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  asked = {device(0), CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(driver_.cuMemPoolSetAccess(pool, &asked, 1), CUDA_ERROR_INVALID_VALUE)
      << "its own";
}

TEST_F(SimulatedPools, OfTheHostGivePinnedMemory) {
  const auto find = driver_.find<CUresult(CUmemoryPool*, CUmemLocation*, int)>(
      "cuMemGetDefaultMemPool");
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(find(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
  const CUdeviceptr memory =
      value_of(driver_.cuMemAllocFromPoolAsync, 16, pool, nullptr);
  unsigned type = 0;
  EXPECT_EQ(
      driver_.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory),
      CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(driver_.cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_EQ(find(&pool, &host, 7), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace kiln::test
