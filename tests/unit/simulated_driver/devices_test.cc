#include <array>
#include <cstdlib>
#include <cstring>

#include "tests/unit/simulated_driver/api.h"

namespace kiln::test {
namespace {

int attribute(const DriverUnderTest& driver, CUdevice device,
              CUdevice_attribute which) {
  const int value = value_of(driver.cuDeviceGetAttribute, which, device);
  return value;
}

TEST(SimulatedDevices, AreThoseAskedForInThatOrder) {
  const DriverUnderTest driver("7.5,12.1,9.0");
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  const int count = value_of(driver.cuDeviceGetCount);
  ASSERT_EQ(count, 3);
  constexpr std::array<std::array<int, 2>, 3> kExpected{{{7, 5}, {12, 1}, {9, 0}}};
  for (int i = 0; i < count; ++i) {
    const CUdevice device = value_of(driver.cuDeviceGet, i);
    const auto& expected = kExpected[static_cast<std::size_t>(i)];
    EXPECT_EQ(attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
              expected[0]);
    EXPECT_EQ(attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
              expected[1]);
  }
}

TEST(SimulatedDevices, ComeFromTheEnvironmentToo) {
  ::setenv("KILN_SIMULATED_DEVICES", "8.6,8.0", 1);  // NOLINT(concurrency-mt-unsafe)
  ::setenv("KILN_SIMULATED_DRIVER_VERSION", "12040", 1);  // NOLINT(*-mt-unsafe)
  const DriverUnderTest driver;
  driver.reset();  // what the test said goes, the environment stays
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  ::unsetenv("KILN_SIMULATED_DEVICES");         // NOLINT(concurrency-mt-unsafe)
  ::unsetenv("KILN_SIMULATED_DRIVER_VERSION");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(value_of(driver.cuDriverGetVersion), 12040);
  EXPECT_EQ(attribute(driver, 0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 6);
  EXPECT_EQ(attribute(driver, 1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
}

TEST(SimulatedDevices, NoneIsAnErrorOfInitialisation) {
  const DriverUnderTest driver("");
  EXPECT_EQ(driver.cuInit(0), CUDA_ERROR_NO_DEVICE);
  int count = 0;
  EXPECT_EQ(driver.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
}

TEST(SimulatedDevices, AnEnvironmentThatCannotBeReadIsAnErrorOfInitialisation) {
  const std::array<std::array<const char*, 2>, 7> bad{
      {{"KILN_SIMULATED_DEVICES", "9"},
       {"KILN_SIMULATED_DEVICES", "9.0;8.0"},
       {"KILN_SIMULATED_DRIVER_VERSION", "13.0"},
       {"KILN_SIMULATED_LOADING", "sometimes"},
       {"KILN_SIMULATED_FAULTS", "cuNothing=2"},
       {"KILN_SIMULATED_FAULTS", "cuInit:0=2"},
       {"KILN_SIMULATED_ABSENT", "cuNothing"}}};
  const DriverUnderTest driver;
  for (const auto& [name, value] : bad) {
    ::setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
    driver.reset();
    EXPECT_EQ(driver.cuInit(0), CUDA_ERROR_INVALID_VALUE) << name << "=" << value;
    ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  }
  driver.reset();
  EXPECT_EQ(driver.cuInit(0), CUDA_SUCCESS);
}

TEST(SimulatedDevices, BeforeInitialisationOnlyVersionAndErrorTextsAreTold) {
  const DriverUnderTest driver;
  EXPECT_EQ(value_of(driver.cuDriverGetVersion), 13000);
  const char* text = nullptr;
  EXPECT_EQ(driver.cuGetErrorName(CUDA_ERROR_NO_BINARY_FOR_GPU, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_NO_BINARY_FOR_GPU");
  EXPECT_EQ(driver.cuGetErrorString(CUDA_ERROR_NO_BINARY_FOR_GPU, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "no kernel image is available for execution on the device");
  CUdevice device = 0;
  EXPECT_EQ(driver.cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
  CUcontext context = nullptr;
  EXPECT_EQ(driver.cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(driver.cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedDevices, AnOrdinalThatThereIsNotIsAnInvalidDevice) {
  const DriverUnderTest driver("9.0,8.0");
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  for (const int ordinal : {-1, 2, 1 << 30}) {
    CUdevice device = 0;
    int value = 0;
    CUcontext context = nullptr;
    EXPECT_EQ(driver.cuDeviceGet(&device, ordinal), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(
        driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, ordinal),
        CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, ordinal),
              CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(driver.cuDeviceCanAccessPeer(&value, 0, ordinal),
              CUDA_ERROR_INVALID_DEVICE);
  }
  int value = 0;
  EXPECT_EQ(
      driver.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(200), 0),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuDeviceGetCount(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedDevices, HaveWhatTheirCapabilityHas) {
  const DriverUnderTest driver("7.5,8.0,8.6,8.7,8.9,9.0,10.0,12.0");
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  constexpr std::array kOptinKib{64, 163, 99, 163, 99, 227, 227, 99};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(
        attribute(driver, i, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        kOptinKib[static_cast<std::size_t>(i)] * 1024);
    EXPECT_EQ(attribute(driver, i, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
              48 * 1024);
    EXPECT_EQ(attribute(driver, i, CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
    EXPECT_EQ(attribute(driver, i, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    EXPECT_EQ(attribute(driver, i, CU_DEVICE_ATTRIBUTE_INTEGRATED), i == 3 ? 1 : 0);
    EXPECT_EQ(attribute(driver, i, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), i >= 5 ? 1 : 0);
  }
}

TEST(SimulatedDevices, HaveNamesAndIdentitiesOfTheirOwn) {
  const DriverUnderTest driver("9.0,9.0,8.0");
  ASSERT_EQ(driver.cuInit(0), CUDA_SUCCESS);
  std::array<char, 64> name{};
  ASSERT_EQ(driver.cuDeviceGetName(name.data(), 64, 2), CUDA_SUCCESS);
  EXPECT_STREQ(name.data(), "Simulated 8.0");
  ASSERT_EQ(driver.cuDeviceGetName(name.data(), 4, 2), CUDA_SUCCESS);
  EXPECT_STREQ(name.data(), "Sim");
  const CUuuid first = value_of(driver.cuDeviceGetUuid, 0);
  const CUuuid second = value_of(driver.cuDeviceGetUuid, 1);
  EXPECT_NE(std::memcmp(first.bytes, second.bytes, sizeof(first.bytes)), 0);
  std::array<char, 32> bus{};
  ASSERT_EQ(driver.cuDeviceGetPCIBusId(bus.data(), 32, 1), CUDA_SUCCESS);
  EXPECT_EQ(value_of(driver.cuDeviceGetByPCIBusId, bus.data()), 1);
  int can = value_of(driver.cuDeviceCanAccessPeer, 0, 1);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(driver.cuDeviceCanAccessPeer(&can, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
}

}  // namespace
}  // namespace kiln::test
