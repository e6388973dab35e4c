#include <thread>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

CUcontext current(const DriverUnderTest& driver) {
  const CUcontext context = value_of(driver.cuCtxGetCurrent);
  return context;
}

bool is_primary_active(const DriverUnderTest& driver, CUdevice device) {
  unsigned flags = 0;
  int active = -1;
  EXPECT_EQ(driver.cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
  return active != 0;
}

TEST(SimulatedContexts, APrimaryOneLivesAsLongAsItIsRetained) {
  const DriverUnderTest driver;
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  EXPECT_FALSE(is_primary_active(driver, 0));
  const CUcontext first = value_of(driver.cuDevicePrimaryCtxRetain, 0);
  const CUcontext second = value_of(driver.cuDevicePrimaryCtxRetain, 0);
  EXPECT_EQ(first, second);
  EXPECT_EQ(current(driver), nullptr);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_TRUE(is_primary_active(driver, 0));
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_FALSE(is_primary_active(driver, 0));
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuCtxPushCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST(SimulatedContexts, WhatWasInAPrimaryOneIsGoneWithIt) {
  const DriverUnderTest driver;
  const CUcontext context = driver.use();
  const CUfunction function = driver.load(cubin_for("sm_90"), "k");
  const CUstream stream = value_of(driver.cuStreamCreate, 0);
  const CUdeviceptr memory = value_of(driver.cuMemAlloc, 64);
  ASSERT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_STREAMS), 0U);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_ALLOCATIONS), 0U);
  EXPECT_EQ(driver.use(), context) << "the handle of a device stays";
  EXPECT_EQ(driver.launch(function), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedContexts, ParametersThatAskForNothingAreTaken) {
  const DriverUnderTest driver;
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  const auto create =
      driver.find<CUresult(CUcontext*, CUctxCreateParams*, unsigned, CUdevice)>(
          "cuCtxCreate_v4");
  CUcontext context = nullptr;
  CUctxCreateParams parameters{};
  EXPECT_EQ(create(&context, &parameters, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(current(driver), context);
  parameters.numExecAffinityParams = 1;
  EXPECT_EQ(create(&context, &parameters, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
}

TEST(SimulatedContexts, AResetOneHasToBeReleasedAllTheSame) {
  const UsedDriver driver;
  ASSERT_EQ(driver.cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  EXPECT_FALSE(is_primary_active(driver, 0));
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(SimulatedContexts, EachThreadHasAStackOfItsOwn) {
  const DriverUnderTest driver("9.0,8.0");
  const CUcontext first = driver.use(0);
  const CUcontext second = value_of(driver.cuDevicePrimaryCtxRetain, 1);
  ASSERT_EQ(driver.cuCtxPushCurrent(second), CUDA_SUCCESS);
  CUdevice device = value_of(driver.cuCtxGetDevice);
  EXPECT_EQ(device, 1);
  std::thread([&] {
    EXPECT_EQ(current(driver), nullptr);
    EXPECT_EQ(driver.cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    CUcontext none = nullptr;
    EXPECT_EQ(driver.cuCtxPopCurrent(&none), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  EXPECT_EQ(value_of(driver.cuCtxPopCurrent), second);
  EXPECT_EQ(current(driver), first);
  EXPECT_EQ(driver.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(current(driver), nullptr);
}

TEST(SimulatedContexts, OneThatWasDestroyedElsewhereIsAnErrorWhereItIsCurrent) {
  const DriverUnderTest driver;
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  const CUcontext context = value_of(driver.create_context, 0, 0);
  EXPECT_EQ(current(driver), context);
  unsigned version = 0;
  EXPECT_EQ(driver.cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(driver.cuCtxDestroy(context), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(driver.cuCtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuCtxGetApiVersion(context, &version), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(SimulatedContexts, HandlesOfAnotherDriverOrKindAreErrors) {
  const DriverUnderTest driver;
  const DriverUnderTest other;
  const CUcontext foreign = other.use();
  const CUcontext context = driver.use();
  EXPECT_EQ(driver.cuCtxPushCurrent(foreign), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuCtxPushCurrent(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuModuleUnload(reinterpret_cast<CUmodule>(context)),
            CUDA_ERROR_INVALID_HANDLE);
  int on_stack = 0;
  EXPECT_EQ(driver.cuCtxPushCurrent(reinterpret_cast<CUcontext>(&on_stack)),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuStreamSynchronize(reinterpret_cast<CUstream>(&on_stack)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.launch(reinterpret_cast<CUfunction>(&on_stack)),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST(SimulatedContexts, HaveNumbersThatAreNotUsedAgain) {
  const DriverUnderTest driver;
  const CUcontext context = driver.use();
  unsigned long long first = 0;
  ASSERT_EQ(driver.cuCtxGetId(nullptr, &first), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  driver.use();
  unsigned long long second = 0;
  ASSERT_EQ(driver.cuCtxGetId(context, &second), CUDA_SUCCESS);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace kiln::test
