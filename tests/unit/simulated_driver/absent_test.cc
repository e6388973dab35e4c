#include <cstdlib>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

using Lookup = CUresult(const char*, void**, int, cuuint64_t,
                        CUdriverProcAddressQueryResult*);

TEST(SimulatedAbsence, DlsymDoesNotFindWhatAnOlderDriverDoesNotHave) {
  const DriverUnderTest driver;
  EXPECT_NE(driver.find<void()>("cuModuleEnumerateFunctions"), nullptr);
  ASSERT_EQ(driver.remove("cuModuleEnumerateFunctions"), 0);
  EXPECT_EQ(driver.find<void()>("cuModuleEnumerateFunctions"), nullptr);
  EXPECT_NE(driver.find<void()>("cuModuleGetFunctionCount"), nullptr);
  EXPECT_EQ(driver.remove("cuModuleEnumerateFunctions"), 0) << "already gone";
  EXPECT_EQ(driver.remove("cuNothing"), -1);
  driver.use();
  const CUmodule module = driver.load(cubin_for("sm_90"));
  EXPECT_EQ(driver.cuModuleEnumerateFunctions(nullptr, 0, module), CUDA_SUCCESS)
      << "for those who found it before";
  driver.reset();
  EXPECT_NE(driver.find<void()>("cuModuleEnumerateFunctions"), nullptr);
}

TEST(SimulatedAbsence, TakesEveryVersionOfAFunction) {
  const DriverUnderTest driver;
  ASSERT_EQ(driver.remove("cuDeviceGetUuid"), 0);
  EXPECT_EQ(driver.find<void()>("cuDeviceGetUuid"), nullptr);
  EXPECT_EQ(driver.find<void()>("cuDeviceGetUuid_v2"), nullptr);
}

TEST(SimulatedAbsence, IsNotThatOfWhatIsNotSimulated) {
  const DriverUnderTest driver;
  const auto refused = driver.find<CUresult()>("cuGetExportTable");
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused(), CUDA_ERROR_NOT_INITIALIZED);
  driver.use();
  EXPECT_EQ(refused(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(driver.calls("cuGetExportTable"), 2U);
  ASSERT_EQ(driver.inject("cuGetExportTable", 0, CUDA_ERROR_UNKNOWN), 0);
  EXPECT_EQ(refused(), CUDA_ERROR_UNKNOWN);
  ASSERT_EQ(driver.remove("cuGetExportTable"), 0);
  EXPECT_EQ(driver.find<void()>("cuGetExportTable"), nullptr);
}

TEST(SimulatedAbsence, OfOneCopyOfTheLibraryIsNotThatOfAnother) {
  const DriverUnderTest driver;
  const DriverUnderTest other;
  ASSERT_EQ(driver.remove("cuFuncGetName"), 0);
  EXPECT_NE(other.find<void()>("cuFuncGetName"), nullptr);
}

TEST(SimulatedAbsence, ComesFromTheEnvironmentBeforeAnybodyCanLook) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  ::setenv("KILN_SIMULATED_ABSENT", "cuModuleEnumerateFunctions,cuLibraryLoadData", 1);
  const SimulatedDriver driver;
  ::unsetenv("KILN_SIMULATED_ABSENT");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(driver.find<void()>("cuModuleEnumerateFunctions"), nullptr);
  EXPECT_EQ(driver.find<void()>("cuLibraryLoadData"), nullptr);
  EXPECT_NE(driver.find<void()>("cuModuleLoadData"), nullptr);
}

TEST(SimulatedAbsence, GetProcAddressGivesTheVersionThatBothKnow) {
  const DriverUnderTest driver;
  const auto lookup = driver.find<Lookup>("cuGetProcAddress_v2");
  void* address = nullptr;
  CUdriverProcAddressQueryResult status{};
  ASSERT_EQ(lookup("cuDeviceGetUuid", &address, 11000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address, reinterpret_cast<void*>(driver.find<void()>("cuDeviceGetUuid")));
  ASSERT_EQ(lookup("cuDeviceGetUuid", &address, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address,
            reinterpret_cast<void*>(driver.find<void()>("cuDeviceGetUuid_v2")));
  EXPECT_EQ(lookup("cuFuncGetName", &address, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(lookup("cuNothing", &address, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  ASSERT_EQ(driver.set_driver_version(12000), 0);
  EXPECT_EQ(lookup("cuFuncGetName", &address, 13000, 0, &status), CUDA_ERROR_NOT_FOUND)
      << "the driver is older than the caller";
  ASSERT_EQ(driver.remove("cuMemAlloc"), 0);
  EXPECT_EQ(lookup("cuMemAlloc", &address, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace kiln::test
