// Profiles: files and those that are published, for kernels and for plans.

#include "device/profile.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/is_error.h"
#include "tests/support/simulated_driver.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

using nlohmann::json;

struct Published {
  const char* name;
  ComputeCapability capability;
  std::int64_t multiprocessors;
  std::int64_t memory_gib;
  std::int64_t gigabytes_per_second;
  std::int64_t bus_bits;
};

// As NVIDIA publishes them.
constexpr Published kPublished[] = {
    {"a10", {8, 6}, 72, 24, 600, 384},
    {"a100-sxm-40gb", {8, 0}, 108, 40, 1555, 5120},
    {"a100-sxm-80gb", {8, 0}, 108, 80, 2039, 5120},
    {"b200", {10, 0}, 148, 180, 7672, 7680},
    {"h100-pcie", {9, 0}, 114, 80, 2039, 5120},
    {"h100-sxm", {9, 0}, 132, 80, 3352, 5120},
    {"h200", {9, 0}, 132, 140, 4917, 6144},
    {"l4", {8, 9}, 58, 24, 300, 192},
    {"l40s", {8, 9}, 142, 48, 864, 384},
    {"rtx-3090", {8, 6}, 82, 24, 936, 384},
    {"rtx-4090", {8, 9}, 128, 24, 1008, 384},
    {"rtx-5090", {12, 0}, 170, 32, 1792, 512},
};

TEST(PublishedProfiles, AreThese) {
  const auto all = published_profiles();
  ASSERT_EQ(all.size(), std::size(kPublished));
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].name, kPublished[i].name);
}

TEST(PublishedProfiles, HaveWhatIsPublishedAndSayWhere) {
  for (const Published& each : kPublished) {
    SCOPED_TRACE(each.name);
    const auto properties = read_device_properties(each.name);
    ASSERT_TRUE(properties) << properties.error().message;
    EXPECT_EQ(properties->capability(), each.capability);
    EXPECT_EQ(properties->multiprocessors, each.multiprocessors);
    EXPECT_EQ(properties->memory_bytes >> 30, each.memory_gib);
    // Two bits a clock and wire.
    const double bandwidth = static_cast<double>(properties->memory_clock_khz) * 1e3 *
                             2 * static_cast<double>(each.bus_bits) / 8 / 1e9;
    EXPECT_NEAR(bandwidth, static_cast<double>(each.gigabytes_per_second), 1);
    EXPECT_EQ(properties->driver_version, 13000);
    EXPECT_EQ(properties->pci_device_id, 0);
    EXPECT_EQ(read_profile(each.name).value().capability, each.capability);
  }
  for (const PublishedProfile& each : published_profiles())
    EXPECT_FALSE(json::parse(each.text).at("source").get<std::string>().empty());
}

// What the SM has by its capability alone is what the simulated devices of that
// capability have, whose table was written apart.
TEST(PublishedProfiles, AgreeWithSimulatedDevicesOfTheirCapability) {
  for (const Published& each : kPublished) {
    SCOPED_TRACE(each.name);
    const test::SimulatedDriver simulated(to_string(each.capability));
    const auto driver = Driver::open(simulated.path(), {});
    ASSERT_TRUE(driver && driver->has_value());
    DeviceProperties device = device_properties(**driver, 0).value();
    const DeviceProperties published = read_device_properties(each.name).value();
    // What is of the product.
    device.name = published.name;
    device.multiprocessors = published.multiprocessors;
    device.memory_bytes = published.memory_bytes;
    device.clock_khz = published.clock_khz;
    device.memory_clock_khz = published.memory_clock_khz;
    device.l2_bytes = published.l2_bytes;
    device.driver_version = published.driver_version;
    EXPECT_EQ(device.cudnn_json(), published.cudnn_json());
  }
}

TEST(Profile, OfNoNameIsAnErrorWithAllAndTheNearest) {
  EXPECT_THAT(
      read_profile("h100-smx"),
      test::IsError(ErrorCode::kNotFound,
                    AllOf(HasSubstr("no profile 'h100-smx' among a10, a100-sxm-40gb"),
                          HasSubstr("did you mean 'h100-sxm'?"))));
  for (const char* const file : {"h100-sxm.json", "./h100-sxm"})
    EXPECT_THAT(read_device_properties(file).error().message,
                AllOf(HasSubstr(file), testing::Not(HasSubstr("among"))));
}

TEST(Profile, ForKernelsNeedsNameAndCapabilityAndForPlansAll) {
  const test::TempDir dir;
  const auto file = dir.path() / "small.json";
  std::ofstream(file) << R"({"deviceVer": 860, "deviceName": "small"})";
  const auto profile = read_profile(file);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->name, "small");
  EXPECT_EQ(profile->capability, (ComputeCapability{8, 6}));
  EXPECT_THAT(
      read_device_properties(file).error().message,
      AllOf(HasSubstr("small.json is no device profile: 'maxGridSize' is missing"),
            HasSubstr("kiln doctor --profile")));
  for (const char* const wrong :
       {"[]", "{}", R"({"deviceVer": "900", "deviceName": "x"})",
        R"({"deviceVer": 9, "deviceName": "x"})", R"({"deviceVer": 900})"}) {
    std::ofstream(file) << wrong;
    EXPECT_EQ(read_profile(file).error().code, ErrorCode::kInvalidArgument) << wrong;
  }
}

TEST(Profile, OfAPresentDeviceIsReadBack) {
  const test::SimulatedDriver simulated("12.0");
  const auto driver = Driver::open(simulated.path(), {});
  ASSERT_TRUE(driver && driver->has_value());
  const test::TempDir dir;
  const auto file = dir.path() / "profile";
  std::ofstream(file) << describe_device(**driver, 0).value();
  EXPECT_EQ(read_device_properties(file).value(),
            device_properties(**driver, 0).value());
}

}  // namespace
}  // namespace kiln::device
