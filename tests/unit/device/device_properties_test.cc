// The 23 properties of a device: out of JSON, out of a driver, and back.

#include "device/device_properties.h"

#include <nlohmann/json.hpp>

#include "tests/support/simulated_driver.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

using nlohmann::json;

json hopper() {
  return {{"maxGridSize", {2147483647, 65535, 65535}},
          {"maxBlockSize", {1024, 1024, 64}},
          {"regsPerBlock", 65536},
          {"multiProcessorCount", 132},
          {"warpSize", 32},
          {"maxSharedMemoryPerBlock", 49152},
          {"maxSharedMemoryPerBlockOptin", 232448},
          {"reservedSharedMemoryPerBlock", 1024},
          {"maxRegistersPerSM", 65536},
          {"maxCtasPerSM", 32},
          {"maxThreadsPerBlock", 1024},
          {"maxThreadsPerSM", 2048},
          {"pciDeviceId", 0},
          {"isTccDriver", 0},
          {"supportCoopLaunch", 1},
          {"totalGlobalMem", 150754820096},
          {"smClockRateKHz", 1980000},
          {"memClockRateKHz", 3201000},
          {"l2CacheSize", 62914560},
          {"cudaDeviceId", 0},
          {"deviceVer", 900},
          {"driverVer", 13000},
          {"deviceName", "NVIDIA H200"}};
}

std::string refusal(const json& profile) {
  const auto read = parse_device_properties(profile.dump());
  EXPECT_FALSE(read) << profile.dump();
  if (read)
    return "";
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  return read.error().message;
}

TEST(DeviceProperties, AreWrittenAsTheyWereRead) {
  const json profile = hopper();
  ASSERT_EQ(profile.size(), 23U);
  const auto read = parse_device_properties(profile.dump());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->capability(), (ComputeCapability{9, 0}));
  EXPECT_EQ(read->multiprocessors, 132);
  EXPECT_EQ(read->shared_bytes_per_block_optin, 232448);
  EXPECT_EQ(read->memory_bytes, 150754820096);
  EXPECT_EQ(json::parse(read->cudnn_json()), profile);
  EXPECT_EQ(json::parse(read->indented_json()), profile);
  EXPECT_EQ(parse_device_properties(read->cudnn_json()).value(), *read);
}

TEST(DeviceProperties, IgnoreFurtherKeys) {
  json profile = hopper();
  profile["source"] = "a data sheet";
  EXPECT_EQ(json::parse(parse_device_properties(profile.dump())->cudnn_json()),
            hopper());
}

TEST(DeviceProperties, NameTheKeyThatIsMissing) {
  const json all = hopper();
  for (const auto& [key, value] : all.items()) {
    json profile = all;
    profile.erase(key);
    EXPECT_EQ(refusal(profile), "'" + key + "' is missing");
  }
}

TEST(DeviceProperties, NameTheKeyOfAWrongTypeAndItsValue) {
  const json all = hopper();
  for (const auto& [key, value] : all.items()) {
    json profile = all;
    profile[key] = json::object();
    EXPECT_THAT(refusal(profile), HasSubstr("'" + key + "' is {}, not "));
  }
  const auto with = [](const char* key, const json& value) {
    json profile = hopper();
    profile[key] = value;
    return refusal(profile);
  };
  EXPECT_THAT(with("warpSize", "32"),
              HasSubstr("'warpSize' is \"32\", not an integer"));
  EXPECT_THAT(with("warpSize", 32.0), HasSubstr("not an integer"));
  EXPECT_THAT(with("warpSize", true), HasSubstr("not an integer"));
  EXPECT_THAT(with("l2CacheSize", -1), HasSubstr("'l2CacheSize' is -1, not from 0"));
  EXPECT_THAT(with("l2CacheSize", 1LL << 31), HasSubstr("not from 0 to 2147483647"));
  EXPECT_THAT(with("totalGlobalMem", ~0ULL), HasSubstr("'totalGlobalMem' is 18446"));
  EXPECT_THAT(with("deviceVer", 90), HasSubstr("not 100 * major + 10 * minor"));
  EXPECT_THAT(with("maxBlockSize", {1024, 1024}), HasSubstr("not three integers"));
  EXPECT_THAT(with("maxGridSize", {4294967295, 65535, 65535}),
              AllOf(HasSubstr("'maxGridSize'"), HasSubstr("2147483647")));
  EXPECT_EQ(parse_device_properties("[]").error().message, "not a JSON object");
  EXPECT_FALSE(parse_device_properties("{"));
}

// cuDNN refuses true and false, and writes neither.
TEST(DeviceProperties, TakeTrueAndFalseAndWriteOneAndZero) {
  json profile = hopper();
  profile["isTccDriver"] = false;
  profile["supportCoopLaunch"] = true;
  EXPECT_EQ(json::parse(parse_device_properties(profile.dump())->cudnn_json()),
            hopper());
  profile["isTccDriver"] = 2;
  EXPECT_THAT(refusal(profile), HasSubstr("'isTccDriver' is 2, not from 0 to 1"));
}

TEST(DeviceProperties, OfAPresentDeviceAreWhatTheDriverSays) {
  const test::SimulatedDriver simulated("8.6,9.0");
  ASSERT_EQ(simulated.set_driver_version(13000), 0);
  const auto driver = Driver::open(simulated.path(), {});
  ASSERT_TRUE(driver && driver->has_value());
  const auto second = device_properties(**driver, 1);
  ASSERT_TRUE(second) << second.error().message;
  const json written = json::parse(second->cudnn_json());
  const json known = hopper();
  EXPECT_EQ(written.size(), known.size());
  for (const char* const key :
       {"maxGridSize", "maxBlockSize", "regsPerBlock", "multiProcessorCount",
        "warpSize", "maxSharedMemoryPerBlock", "maxSharedMemoryPerBlockOptin",
        "reservedSharedMemoryPerBlock", "maxRegistersPerSM", "maxCtasPerSM",
        "maxThreadsPerBlock", "maxThreadsPerSM", "isTccDriver", "supportCoopLaunch",
        "totalGlobalMem", "smClockRateKHz", "l2CacheSize", "deviceVer", "driverVer"})
    EXPECT_EQ(written.at(key), known.at(key)) << key;
  EXPECT_EQ(written.at("cudaDeviceId"), 1);
  EXPECT_EQ(parse_device_properties(second->cudnn_json()).value(), *second);
  EXPECT_THAT(device_properties(**driver, 2).error().message,
              HasSubstr("there is no device 2"));
}

}  // namespace
}  // namespace kiln::device
