// Kiln's own eyes on the simulated driver: what it sees of devices, and whether the two
// tables of what runs where, each written apart, say the same.

#include "tests/support/simulated_driver.h"

#include <cuda.h>

#include <array>

#include "device/compatibility.h"
#include "device/driver.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::device {
namespace {

TEST(DriverOpened, SeesTheDevicesInTheDriversOrder) {
  const test::SimulatedDriver simulated("7.5,8.6,9.0,12.1");
  ASSERT_EQ(simulated.set_driver_version(12090), 0);
  const auto driver = test::value_of(Driver::open(simulated.path(), {}));
  ASSERT_TRUE(driver.has_value());
  EXPECT_EQ(driver->version(), (CudaVersion{12, 9}));
  const auto devices = test::value_of(driver->devices());
  ASSERT_EQ(devices.size(), 4U);
  constexpr std::array<ComputeCapability, 4> kExpected{
      {{7, 5}, {8, 6}, {9, 0}, {12, 1}}};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Device& device = devices.at(i);
    EXPECT_EQ(device.ordinal, static_cast<int>(i));
    EXPECT_EQ(device.capability, kExpected[i]);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GT(device.memory_bytes, 0U);
    EXPECT_THAT(device.uuid, testing::StartsWith("GPU-4b696c6e-"));
  }
  EXPECT_EQ(devices.at(2).name, "Simulated 9.0");
  EXPECT_EQ(devices.at(2).pci_id, "0000:03:00.0");
  EXPECT_EQ(driver->can_access_peer(0, 1).value(), false);
}

TEST(DriverOpened, WithoutDevicesHasNoneAndThatIsNoError) {
  const test::SimulatedDriver simulated("");
  const auto driver = Driver::open(simulated.path(), {}).value().value();
  const auto devices = test::value_of(driver.devices());
  EXPECT_TRUE(devices.empty());
}

TEST(DriverOpened, TooOldToTellAUuidDoesWithoutOne) {
  const test::SimulatedDriver simulated("9.0");
  ASSERT_EQ(simulated.remove("cuDeviceGetUuid"), 0);
  const auto driver = Driver::open(simulated.path(), {}).value().value();
  EXPECT_EQ(driver.devices().value().at(0).uuid, "");
}

TEST(DriverOpened, ThatLacksWhatIsNeededIsRefusedByName) {
  const test::SimulatedDriver simulated("9.0");
  ASSERT_EQ(simulated.remove("cuDeviceTotalMem"), 0);
  const auto driver = Driver::open(simulated.path(), {});
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().message, HasSubstr("it lacks cuDeviceTotalMem_v2"));
}

TEST(DriverOpened, ThatFailsSaysTheCallTheErrorAndItsText) {
  const test::SimulatedDriver simulated("9.0,8.0");
  ASSERT_EQ(simulated.inject("cuDeviceGetName", 2, CUDA_ERROR_DEVICE_UNAVAILABLE), 0);
  const auto driver = Driver::open(simulated.path(), {}).value().value();
  const auto devices = driver.devices();
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().code, ErrorCode::kDevice);
  EXPECT_THAT(
      devices.error().message,
      HasSubstr("cuDeviceGetName, device 1: CUDA_ERROR_DEVICE_UNAVAILABLE (46)"));
}

/// Every target there is for `base`, as NVRTC's options spell it.
std::vector<Target> targets_for(ComputeCapability base) {
  std::vector<Target> targets;
  for (const ArchSuffix suffix : {ArchSuffix::kNone, ArchSuffix::kA, ArchSuffix::kF}) {
    for (const ImageKind kind : {ImageKind::kCubin, ImageKind::kPtx})
      targets.push_back({{base, suffix}, kind});
  }
  return targets;
}

/// The simulated driver's image for `target`: an architecture is "sm_90a" in both
/// kinds.
Bytes image_for(const Target& target) {
  const std::string name = to_string(Target{target.architecture, ImageKind::kCubin});
  return target.kind == ImageKind::kPtx ? test::ptx_for(name) : test::cubin_for(name);
}

// Two tables, two authors' hands: where they differ, one is wrong.
TEST(Compatibility, IsTheSameInKilnAndInTheSimulatedDriver) {
  const std::string capabilities =
      "7.0,7.2,7.5,8.0,8.6,8.7,8.9,9.0,10.0,10.1,10.3,11.0,12.0,12.1";
  const test::SimulatedDriver simulated(capabilities);
  const auto init = simulated.find<decltype(::cuInit)>("cuInit");
  const auto retain =
      simulated.find<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  const auto use = simulated.find<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent");
  const auto load = simulated.find<decltype(::cuModuleLoadData)>("cuModuleLoadData");
  ASSERT_EQ(init(0), CUDA_SUCCESS);
  const auto driver = Driver::open(simulated.path(), {}).value().value();
  const std::vector<Device> devices = driver.devices().value();
  for (const Device& device : devices) {
    CUcontext context = nullptr;
    ASSERT_EQ(retain(&context, device.ordinal), CUDA_SUCCESS);
    ASSERT_EQ(use(context), CUDA_SUCCESS);
    for (const Device& base : devices) {
      for (const Target& target : targets_for(base.capability)) {
        const Bytes image = image_for(target);
        CUmodule module = nullptr;
        const bool is_taken = load(&module, image.data()) == CUDA_SUCCESS;
        EXPECT_EQ(runs_on(target, device.capability), is_taken)
            << to_string(target) << " on " << to_string(device.capability);
      }
    }
  }
}

}  // namespace
}  // namespace kiln::device
