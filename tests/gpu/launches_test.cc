// Launches of every kind that a Geometry can ask for, and those that are refused before
// the driver sees them: after one of these the device works on.

#include <algorithm>
#include <numeric>

#include "tests/gpu/gpu_test.h"
#include "tests/support/is_error.h"

namespace kiln::gpu_test {
namespace {

using testing::ElementsAreArray;

class GpuLaunches : public GpuTest {
 protected:
  // One launch of kAddSource in `stream`, and its result.
  static std::vector<float> add_one(const Kernel& kernel, CUstream stream) {
    const DeviceArray<float> x(64);
    expect_done(
        kernel.launch(Geometry{.block = {64, 1, 1}}, stream, x.data(), 64, 1.0F));
    return x.download();
  }
};

TEST_F(GpuLaunches, AStreamOfAnotherContextIsRefusedAndTheDeviceWorksOn) {
  const Device& device = devices().at(0);
  const Kernel kernel = get(source(kAddSource), device);
  const OnDevice scope(device.ordinal);
  const DeviceArray<float> x(64);
  const Geometry geometry{.block = {64, 1, 1}};

  CUcontext other = nullptr;
  must(driver().create_context(&other, 0, scope.device()), "cuCtxCreate");
  {
    const Stream foreign;  // of `other`, which is current since it was made
    EXPECT_THAT(kernel.launch(geometry, foreign.handle(), x.data(), 64, 1.0F),
                test::IsError(ErrorCode::kInvalidArgument));
    EXPECT_THAT(kernel.launch(geometry, nullptr, x.data(), 64, 1.0F),
                test::IsError(ErrorCode::kInvalidArgument));
  }
  must(driver().cuCtxDestroy(other), "cuCtxDestroy");

  const std::vector<float> added = add_one(kernel, Stream().handle());
  const std::vector<float> untouched = x.download();
  EXPECT_THAT(untouched, Each(0.0F));
  EXPECT_THAT(added, Each(1.0F));
}

TEST_F(GpuLaunches, WrongArgumentsAndGeometriesAreRefusedAndTheDeviceWorksOn) {
  const Device& device = devices().at(0);
  const Kernel kernel = get(source(kAddSource), device);
  const OnDevice scope(device.ordinal);
  const DeviceArray<float> x(64);
  const auto expect_refused = [](const Result<void>& launched) {
    EXPECT_THAT(launched, test::IsError(ErrorCode::kInvalidArgument));
  };
  const Geometry geometry{.block = {64, 1, 1}};
  expect_refused(kernel.launch(geometry, nullptr, x.data(), 64));
  expect_refused(kernel.launch(geometry, nullptr, x.data(), 64, 1.0));
  expect_refused(kernel.launch(geometry, nullptr, x.data(), 64L, 1.0F));
  expect_refused(
      kernel.launch(Geometry{.block = {2048, 1, 1}}, nullptr, x.data(), 64, 1.0F));
  expect_refused(
      kernel.launch(Geometry{.grid = {1, 65536, 1}}, nullptr, x.data(), 64, 1.0F));
  expect_refused(
      kernel.launch(Geometry{.shared_bytes = 1U << 20U}, nullptr, x.data(), 64, 1.0F));
  const std::vector<float> added = add_one(kernel, nullptr);
  EXPECT_THAT(added, Each(1.0F));
}

TEST_F(GpuLaunches, MayHaveAllSharedMemoryThatTheDeviceGives) {
  const Request reverse = source(
      "extern \"C\" __global__ void reverse(int* x, int n) {\n"
      "  extern __shared__ int tile[];\n"
      "  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];\n"
      "  __syncthreads();\n"
      "  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[n - 1 - i];\n"
      "}\n");
  for (const Device& device : device_of_each_kind()) {
    SCOPED_TRACE(device.ordinal);
    const Kernel kernel = get(reverse, device);
    const auto most = kernel.attributes()->max_dynamic_shared_bytes;
    ASSERT_GT(most, 48U * 1024U);
    const OnDevice scope(device.ordinal);
    std::vector<int> numbers(most / sizeof(int));
    std::iota(numbers.begin(), numbers.end(), 1);
    const DeviceArray<int> x{std::span<const int>(numbers)};
    const Geometry geometry{.block = {256, 1, 1}, .shared_bytes = most};
    expect_done(
        kernel.launch(geometry, nullptr, x.data(), static_cast<int>(numbers.size())));
    const std::vector<int> reversed = x.download();
    std::reverse(numbers.begin(), numbers.end());
    EXPECT_EQ(reversed, numbers);
  }
}

TEST_F(GpuLaunches, CooperativeBlocksAreThereAtOnce) {
  // Each waits for all the others: without the promise this might never end.
  const Request meet = source(
      "extern \"C\" __global__ void meet(unsigned* arrived, unsigned* out) {\n"
      "  atomicAdd(arrived, 1u);\n"
      "  while (atomicAdd(arrived, 0u) < gridDim.x) {}\n"
      "  out[blockIdx.x] = atomicAdd(arrived, 0u);\n"
      "}\n");
  for (const Device& device : device_of_each_kind()) {
    SCOPED_TRACE(device.ordinal);
    const Kernel kernel = get(meet, device);
    const OnDevice scope(device.ordinal);
    if (scope.attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 0)
      continue;
    const auto blocks = static_cast<unsigned>(2 * device.multiprocessors);
    const DeviceArray<unsigned> arrived(1);
    const DeviceArray<unsigned> out(blocks);
    const Geometry geometry{.grid = {blocks, 1, 1}, .cooperative = true};
    expect_done(kernel.launch(geometry, nullptr, arrived.data(), out.data()));
    const std::vector<unsigned> seen = out.download();
    EXPECT_THAT(seen, Each(blocks));
    // More than fit are an error of this launch alone.
    const Geometry too_many{.grid = {1U << 20U, 1, 1}, .cooperative = true};
    const auto refused = kernel.launch(too_many, nullptr, arrived.data(), out.data());
    ASSERT_FALSE(refused);
    OnDevice::synchronize();
  }
}

TEST_F(GpuLaunches, ClustersAreFormedFrom90OnAndRefusedBefore) {
  const Request tell = source(
      "extern \"C\" __global__ void tell(unsigned* out) {\n"
      "  unsigned rank = 0, blocks = 0;\n"
      "#if __CUDA_ARCH__ >= 900\n"
      "  asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
      "  asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(blocks));\n"
      "#endif\n"
      "  out[blockIdx.x] = blocks * 100 + rank;\n"
      "}\n");
  for (const Device& device : device_of_each_kind()) {
    SCOPED_TRACE(device.ordinal);
    const Kernel kernel = get(tell, device);
    const OnDevice scope(device.ordinal);
    const DeviceArray<unsigned> out(8);
    const Geometry geometry{.grid = {8, 1, 1}, .cluster = {4, 1, 1}};
    const auto launched = kernel.launch(geometry, nullptr, out.data());
    if (device.capability < ComputeCapability{9, 0}) {
      EXPECT_THAT(launched, test::IsError(ErrorCode::kInvalidArgument));
      continue;
    }
    expect_done(launched);
    const std::vector<unsigned> seen = out.download();
    EXPECT_THAT(seen, ElementsAreArray({400, 401, 402, 403, 400, 401, 402, 403}));
  }
}

}  // namespace
}  // namespace kiln::gpu_test
