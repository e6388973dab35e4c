#include <cstdlib>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

TEST(SimulatedFaults, HitTheCallThatWasNamedAndNoOther) {
  const UsedDriver driver;
  const Bytes image = cubin_for("sm_90");
  CUmodule module = value_of(driver.cuModuleLoadData, image.data());
  ASSERT_EQ(driver.inject("cuModuleLoadData", 2, CUDA_ERROR_OUT_OF_MEMORY), 0);
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
  EXPECT_EQ(driver.calls("cuModuleLoadData"), 4U);
  EXPECT_EQ(driver.loads(), 3U) << "a call that was hit does nothing";
  ASSERT_EQ(driver.inject("cuModuleLoadData", 0, CUDA_ERROR_INVALID_IMAGE), 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_ERROR_INVALID_IMAGE);
  driver.clear_faults();
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
}

TEST(SimulatedFaults, ComeFromTheEnvironmentToo) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  ::setenv("KILN_SIMULATED_FAULTS", "cuMemAlloc:3=2,cuCtxSynchronize=719", 1);
  const UsedDriver driver;
  ::unsetenv("KILN_SIMULATED_FAULTS");  // NOLINT(concurrency-mt-unsafe)
  CUdeviceptr memory = value_of(driver.cuMemAlloc, 4);
  EXPECT_EQ(driver.cuMemAlloc(&memory, 4), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemAlloc(&memory, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(driver.cuMemAlloc(&memory, 4), CUDA_ERROR_LAUNCH_FAILED);
}

TEST(SimulatedFaults, AnErrorOfTheDeviceIsTheEndOfItsContextOnly) {
  const DriverUnderTest driver("9.0,9.0");
  driver.use(1);
  const CUfunction other = driver.load(cubin_for("sm_90"), "k");
  const CUcontext context = driver.use(0);
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  ASSERT_EQ(driver.inject("cuLaunchKernel", 1, CUDA_ERROR_ILLEGAL_ADDRESS), 0);
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUmodule module = nullptr;
  const Bytes image = cubin_for("sm_90");
  EXPECT_EQ(driver.cuModuleLoadData(&module, image.data()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(value_of(driver.cuCtxGetCurrent), context);
  driver.use(1);
  EXPECT_EQ(driver.launch(other), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  driver.use(0);
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_SUCCESS) << "a new life";
}

TEST(SimulatedFaults, AContextCanBeLostFromOutside) {
  const DriverUnderTest driver;
  const CUcontext context = driver.use();
  ASSERT_EQ(driver.lose_context(context, CUDA_ERROR_ECC_UNCORRECTABLE), 0);
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(driver.lose_context(nullptr, CUDA_ERROR_ECC_UNCORRECTABLE), -1);
}

TEST(SimulatedFaults, WhatCannotBeInjectedIsSaid) {
  const DriverUnderTest driver;
  EXPECT_EQ(driver.inject("cuNothing", 1, CUDA_ERROR_OUT_OF_MEMORY), -1);
  EXPECT_EQ(driver.inject("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY), -1);
  EXPECT_EQ(driver.inject("cuMemAlloc", 1, CUDA_SUCCESS), -1);
  EXPECT_EQ(driver.inject("cuMemAlloc", 1, 12345), -1);
}

TEST(SimulatedFaults, AtTheEndOfTheProcessEveryCallSaysSo) {
  const UsedDriver driver;
  driver.deinitialize();
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(driver.cuInit(0), CUDA_ERROR_DEINITIALIZED);
  const char* text = nullptr;
  EXPECT_EQ(driver.cuGetErrorName(CUDA_ERROR_DEINITIALIZED, &text), CUDA_SUCCESS);
}

TEST(SimulatedFaults, AResetMakesEverythingAsNew) {
  const DriverUnderTest driver("8.0,8.0");
  const CUcontext context = driver.use(1);
  const CUfunction function = driver.load(cubin_for("sm_80"), "k");
  ASSERT_EQ(driver.launch(function), CUDA_SUCCESS);
  ASSERT_EQ(driver.inject("cuInit", 0, CUDA_ERROR_UNKNOWN), 0);
  EXPECT_EQ(driver.set_devices("9.0"), -1) << "not while it runs";
  driver.reset();
  EXPECT_EQ(driver.calls("cuLaunchKernel"), 0U);
  EXPECT_TRUE(driver.launches().empty());
  CUcontext current = nullptr;
  EXPECT_EQ(driver.cuCtxGetCurrent(&current), CUDA_ERROR_NOT_INITIALIZED);
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(value_of(driver.cuDeviceGetCount), 1) << "the environment's again";
  EXPECT_EQ(driver.cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(driver.cuCtxPushCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace kiln::test
