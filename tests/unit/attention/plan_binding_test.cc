#include "attention/plan_binding.h"

#include "device/device_properties.h"
#include "device/profile.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"

namespace kiln::attention {
namespace {

std::vector<BoundProperty> bound(const device::DeviceProperties& device) {
  return binding_of(device.cudnn_json()).value();
}

device::DeviceProperties h200() {
  return device::read_device_properties("h200").value();
}

TEST(PlanBinding, DevicesThatCudnnTakesForOneAreOne) {
  device::DeviceProperties other = h200();
  other.name = "another name";
  other.memory_bytes /= 2;
  other.clock_khz += 1;
  other.l2_bytes /= 2;
  other.pci_device_id = 9;
  EXPECT_EQ(describe_difference(bound(h200()), bound(other)), "");
  EXPECT_EQ(
      describe_difference(bound(h200()),
                          bound(device::read_device_properties("h100-sxm").value())),
      "");
}

TEST(PlanBinding, WhatDiffersIsNamedWithBothValues) {
  device::DeviceProperties other = h200();
  other.driver_version = 13010;
  other.max_grid_size[1] = 7;
  const std::string said = describe_difference(bound(h200()), bound(other));
  EXPECT_THAT(said, HasSubstr("driverVer is 13000 in the plan, 13010 here"));
  EXPECT_THAT(said, HasSubstr("maxGridSize is [2147483647, 65535, 65535] in the plan, "
                              "[2147483647, 7, 65535] here"));
}

TEST(PlanBinding, AMissingPropertyIsNamed) {
  EXPECT_THAT(binding_of(R"({"maxGridSize":[1,1,1]})"),
              test::IsError(ErrorCode::kInvalidArgument, HasSubstr("'maxBlockSize'")));
  EXPECT_FALSE(binding_of("no JSON"));
  EXPECT_FALSE(binding_of(R"({"maxGridSize":["a"]})"));
}

}  // namespace
}  // namespace kiln::attention
