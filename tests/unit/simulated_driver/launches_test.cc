#include <array>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

constexpr auto kDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

TEST(SimulatedLaunches, AreRecorded) {
  const DriverUnderTest driver("8.0,9.0");
  driver.use(1);
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  const CUstream stream = value_of(driver.cuStreamCreate, CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(
      driver.cuLaunchKernel(function, 4, 3, 2, 32, 2, 1, 128, stream, nullptr, nullptr),
      CUDA_SUCCESS);
  const auto launches = driver.launches();
  ASSERT_EQ(launches.size(), 1U);
  const kiln_simulated_launch& launch = launches[0];
  EXPECT_STREQ(launch.function, "k");
  EXPECT_EQ(launch.device, 1);
  EXPECT_THAT(launch.grid, testing::ElementsAre(4, 3, 2));
  EXPECT_THAT(launch.block, testing::ElementsAre(32, 2, 1));
  EXPECT_EQ(launch.dynamic_shared_bytes, 128U);
  EXPECT_EQ(launch.stream, stream);
  EXPECT_THAT(launch.cluster, testing::ElementsAre(0, 0, 0));
  EXPECT_EQ(launch.is_cooperative, 0);
}

TEST(SimulatedLaunches, NameTheImageThatWasLoaded) {
  const UsedDriver driver;
  EXPECT_EQ(driver.last_image(), nullptr);
  const std::array images{cubin_for("sm_90"), cubin_for("sm_90", "12.9"),
                          ptx_for("sm_90")};
  std::vector<std::string> expected;
  for (const Bytes& image : images) {
    const CUfunction function = driver.load(image, "k");
    const ByteView bytes(image.data(), image.size() - (&image == &images[2] ? 1 : 0));
    expected.push_back(Digest::of(bytes).hex());
    EXPECT_STREQ(driver.last_image(), expected.back().c_str());
    EXPECT_EQ(driver.launch(function), CUDA_SUCCESS);
  }
  const std::vector<kiln_simulated_launch> launches = driver.launches();
  ASSERT_EQ(launches.size(), images.size());
  for (std::size_t i = 0; i < images.size(); ++i)
    EXPECT_STREQ(launches[i].image, expected[i].c_str());
}

TEST(SimulatedLaunches, OfImpossibleShapesAreRefused) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90"), "plain");
  EXPECT_EQ(driver.launch(function, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.launch(function, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.launch(function, 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.launch(function, 0x80000000U), CUDA_ERROR_INVALID_VALUE);
  const auto launch = [&](unsigned grid_y, unsigned block_y, unsigned block_z) {
    return driver.cuLaunchKernel(function, 1, grid_y, 1, 1, block_y, block_z, 0,
                                 nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(launch(65536, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 32, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(65535, 16, 64), CUDA_SUCCESS);
  void* parameters = nullptr;
  EXPECT_EQ(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, &parameters,
                                  &parameters),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.launches().size(), 1U);
}

TEST(SimulatedLaunches, BeyondTheKernelsOwnBoundsAreTooManyResources) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  EXPECT_EQ(driver.launch(function, 1, 256), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(function, 1, 257), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST(SimulatedLaunches, MoreThan48KiBOfSharedMemoryHaveToBeAskedForFirst) {
  const DriverUnderTest driver("9.0,8.6");
  for (const int device : {0, 1}) {
    driver.use(device);
    const int optin = (device == 0 ? 227 : 99) * 1024;
    const CUfunction function =
        driver.load(cubin_for(device == 0 ? "sm_90" : "sm_86"), "plain");
    EXPECT_EQ(driver.launch(function, 1, 32, 48 * 1024), CUDA_SUCCESS);
    EXPECT_EQ(driver.launch(function, 1, 32, 48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuFuncSetAttribute(function, kDynamic, optin + 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver.cuFuncSetAttribute(function, kDynamic, -1),
              CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(driver.cuFuncSetAttribute(function, kDynamic, optin), CUDA_SUCCESS);
    const auto bytes = static_cast<unsigned>(optin);
    EXPECT_EQ(driver.launch(function, 1, 32, bytes), CUDA_SUCCESS);
    EXPECT_EQ(driver.launch(function, 1, 32, bytes + 1), CUDA_ERROR_INVALID_VALUE);
  }
}

TEST(SimulatedLaunches, StaticSharedMemoryCountsToo) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  EXPECT_EQ(driver.launch(function, 1, 32, 48 * 1024 - 512), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(function, 1, 32, 48 * 1024 - 511), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuFuncSetAttribute(function, kDynamic, 227 * 1024 - 511),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedLaunches, AFunctionOrStreamOfAnotherContextIsAnInvalidHandle) {
  const UsedDriver driver("9.0,9.0");
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  const CUstream stream = value_of(driver.cuStreamCreate, 0);
  const CUcontext second = driver.use(1);
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.launch(function, 1, 32, 0, stream), CUDA_ERROR_INVALID_HANDLE);
  const CUfunction own = driver.load(cubin_for("sm_90"), "k");
  EXPECT_EQ(driver.launch(own, 1, 32, 0, stream), CUDA_ERROR_INVALID_HANDLE);
  CUcontext owner = nullptr;
  ASSERT_EQ(driver.cuStreamGetCtx(stream, &owner), CUDA_SUCCESS);
  EXPECT_NE(owner, second) << "a stream tells its own context";
  for (const CUstream special :
       {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    ASSERT_EQ(driver.cuStreamGetCtx(special, &owner), CUDA_SUCCESS);
    EXPECT_EQ(owner, second);
    EXPECT_EQ(driver.launch(own, 1, 32, 0, special), CUDA_SUCCESS);
  }
  ASSERT_EQ(driver.cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuStreamGetCtx(stream, &owner), CUDA_ERROR_INVALID_HANDLE);
}

TEST(SimulatedLaunches, ALibrarysKernelGoesToTheStreamsContext) {
  const UsedDriver driver("9.0,9.0");
  const CUstream stream = value_of(driver.cuStreamCreate, 0);
  const Bytes image = cubin_for("sm_90");
  CUkernel kernel = nullptr;
  const CUlibrary library = value_of(driver.cuLibraryLoadData, image.data(), nullptr,
                                     nullptr, 0, nullptr, nullptr, 0);
  ASSERT_EQ(driver.cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS);
  driver.use(1);
  const auto function = reinterpret_cast<CUfunction>(kernel);
  EXPECT_EQ(driver.launch(function, 1, 32, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(function), CUDA_SUCCESS);
  ASSERT_EQ(driver.launches().size(), 2U);
  EXPECT_EQ(driver.launches()[0].device, 0);
  EXPECT_EQ(driver.launches()[1].device, 1);
}

TEST(SimulatedLaunches, ACooperativeOneHasToFitTheDeviceAtOnce) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90"), "plain");
  int blocks =
      value_of(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, 512, 0);
  EXPECT_EQ(blocks, 4);
  ASSERT_EQ(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 512,
                                                               std::size_t{100} * 1024),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  const auto launch = [&](unsigned grid) {
    return driver.cuLaunchCooperativeKernel(function, grid, 1, 1, 512, 1, 1, 0, nullptr,
                                            nullptr);
  };
  EXPECT_EQ(launch(4 * 132), CUDA_SUCCESS);
  EXPECT_EQ(launch(4 * 132 + 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_EQ(launch(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      driver.cuLaunchCooperativeKernel(function, 1, 1, 1, 0, 1, 1, 0, nullptr, nullptr),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.launches().at(0).is_cooperative, 1);
}

struct ClusterCase {
  unsigned grid;
  std::array<unsigned, 3> cluster;
  CUresult result;
};

CUresult launch_cluster(const DriverUnderTest& driver, CUfunction function,
                        const ClusterCase& each) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = each.cluster[0];
  attribute.value.clusterDim.y = each.cluster[1];
  attribute.value.clusterDim.z = each.cluster[2];
  CUlaunchConfig config{};
  config.gridDimX = each.grid;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return driver.cuLaunchKernelEx(&config, function, nullptr, nullptr);
}

TEST(SimulatedLaunches, AClusterHasToDivideTheGridAndBeSmall) {
  const UsedDriver driver("9.0,8.0");
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  for (const ClusterCase& each :
       {ClusterCase{8, {4, 1, 1}, CUDA_SUCCESS},
        ClusterCase{8, {3, 1, 1}, CUDA_ERROR_INVALID_VALUE},
        ClusterCase{8, {4, 2, 1}, CUDA_ERROR_INVALID_VALUE},
        ClusterCase{8, {4, 0, 1}, CUDA_ERROR_INVALID_VALUE},
        ClusterCase{16, {16, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE}})
    EXPECT_EQ(launch_cluster(driver, function, each), each.result) << each.cluster[0];
  EXPECT_THAT(driver.launches().at(0).cluster, testing::ElementsAre(4, 1, 1));
  ASSERT_EQ(driver.cuFuncSetAttribute(
                function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(launch_cluster(driver, function, {16, {16, 1, 1}, {}}), CUDA_SUCCESS);
  driver.use(1);
  EXPECT_EQ(
      launch_cluster(driver, driver.load(cubin_for("sm_80"), "k"), {8, {2, 1, 1}, {}}),
      CUDA_ERROR_NOT_SUPPORTED);
}

void add_up(const kiln_simulated_launch* launch, void** parameters, void* user) {
  int* const data = *static_cast<int**>(parameters[0]);
  const int count = *static_cast<int*>(parameters[1]);
  for (int i = 0; i < count; ++i) data[i] += static_cast<int>(launch->grid[0]);
  *static_cast<bool*>(user) = true;
}

TEST(SimulatedLaunches, RunWhatATestHasRegisteredForTheEntryPoint) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  CUdeviceptr memory = value_of(driver.cuMemAlloc, 4 * sizeof(int));
  ASSERT_EQ(driver.cuMemsetD32(memory, 40, 4), CUDA_SUCCESS);
  bool has_run = false;
  driver.register_kernel("k", &add_up, &has_run);
  int count = 4;
  std::array<void*, 2> parameters{&memory, &count};
  ASSERT_EQ(driver.cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, nullptr,
                                  parameters.data(), nullptr),
            CUDA_SUCCESS);
  EXPECT_TRUE(has_run);
  std::vector<int> result(4);
  ASSERT_EQ(driver.cuMemcpyDtoH(result.data(), memory, 4 * sizeof(int)), CUDA_SUCCESS);
  EXPECT_THAT(result, testing::Each(42));
  has_run = false;
  EXPECT_EQ(driver.launch(function, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(has_run) << "a refused launch runs nothing";
}

struct Seen {
  std::string function;
  std::vector<std::size_t> sizes;
  CUresult result = CUDA_SUCCESS;
};
int see(const kiln_simulated_launch* launch, void** /*parameters*/,
        const std::size_t* sizes, std::size_t count, void* user) {
  Seen& seen = *static_cast<Seen*>(user);
  seen.function = launch->function;
  seen.sizes.assign(sizes, sizes + count);
  return seen.result;
}

TEST(SimulatedLaunches, WithoutAFunctionOfTheirOwnRunTheOneForAnyKernel) {
  const UsedDriver driver;
  const MadeCubin cubin{.parameters = {8, 4, 2}};
  const CUmodule module = driver.load(cubin.build());
  const CUfunction function = value_of(driver.cuModuleGetFunction, module, "k");
  const CUfunction plain = value_of(driver.cuModuleGetFunction, module, "plain");
  Seen seen;
  driver.register_any_kernel(&see, &seen);
  EXPECT_EQ(driver.launch(function), CUDA_SUCCESS);
  EXPECT_EQ(seen.function, "k");
  EXPECT_THAT(seen.sizes, testing::ElementsAre(8, 4, 2));
  EXPECT_EQ(driver.launch(plain), CUDA_SUCCESS);
  EXPECT_EQ(seen.function, "plain");
  EXPECT_THAT(seen.sizes, testing::IsEmpty());
  driver.register_kernel(
      "k", +[](const kiln_simulated_launch*, void**, void*) {}, nullptr);
  EXPECT_EQ(driver.launch(function), CUDA_SUCCESS);
  EXPECT_EQ(seen.function, "plain");
  seen.result = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(driver.launch(plain), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_SUCCESS) << "the context is not lost";
}

TEST(SimulatedOccupancy, TellsTheBlockWithWhichMostThreadsRun) {
  const UsedDriver driver;
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  int block = 0;
  const int grid = value_of(driver.cuOccupancyMaxPotentialBlockSize, &block, function,
                            nullptr, 0, 0);
  EXPECT_EQ(block, 256) << "its bounds";
  EXPECT_EQ(grid % 132, 0);
  std::size_t bytes =
      value_of(driver.cuOccupancyAvailableDynamicSMemPerBlock, function, 2, 256);
  EXPECT_EQ(bytes, 228U * 1024 / 2 - 1024 - 512);
  EXPECT_EQ(driver.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 99, 256),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace kiln::test
