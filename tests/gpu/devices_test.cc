// Each device gets the binary built for it, and it is kept.

#include <utility>

#include "tests/gpu/gpu_test.h"
#include "tests/support/value_of.h"

namespace kiln::gpu_test {
namespace {

class GpuDevices : public GpuTest {};

TEST_F(GpuDevices, EachGetsTheBinaryBuiltForIt) {
  const Request request =
      source("extern \"C\" __global__ void tell(int* out) { *out = __CUDA_ARCH__; }\n");
  std::vector<std::pair<Device, int>> told;
  std::vector<std::pair<ComputeCapability, std::string>> keys;
  for (const Device& device : devices()) {
    SCOPED_TRACE(device.ordinal);
    const Kernel kernel = get(request, device);
    for (const auto& [capability, key] : keys)
      EXPECT_EQ(kernel.key() == key, device.capability == capability);
    keys.emplace_back(device.capability, kernel.key());
    const OnDevice scope(device.ordinal);
    const DeviceArray<int> out(1);
    expect_done(kernel.launch(Geometry{}, nullptr, out.data()));
    told.emplace_back(device, out.download().at(0));
  }
  for (const auto& [device, architecture] : told) {
    // Less where the device is newer than the compiler.
    const auto [major, minor] = device.capability;
    EXPECT_GT(architecture, 0) << device.ordinal;
    EXPECT_LE(architecture, major * 100 + minor * 10) << device.ordinal;
  }
}

TEST_F(GpuDevices, AttributesAreWhatTheDriverSays) {
  for (const Device& device : device_of_each_kind()) {
    SCOPED_TRACE(device.ordinal);
    const Kernel kernel = get({"scaled_softmax_fwd", {{"dtype", "bf16"}}}, device);
    const auto attributes = test::value_of(kernel.attributes());
    const OnDevice scope(device.ordinal);
    const auto ask = [&](CUfunction_attribute which) {
      int value = -1;
      must(driver().cuFuncGetAttribute(&value, which, kernel.function()),
           "cuFuncGetAttribute");
      return static_cast<std::uint64_t>(value);
    };
    EXPECT_EQ(attributes.registers, ask(CU_FUNC_ATTRIBUTE_NUM_REGS));
    EXPECT_EQ(attributes.local_bytes, ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    EXPECT_EQ(attributes.constant_bytes, ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
    EXPECT_EQ(attributes.static_shared_bytes, ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    EXPECT_EQ(attributes.max_threads_per_block,
              ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    EXPECT_EQ(attributes.max_dynamic_shared_bytes + attributes.static_shared_bytes,
              static_cast<std::uint64_t>(scope.attribute(
                  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)));
  }
}

// Case: beside a driver NVRTC opens the driver's files too, which no key names.
TEST_F(GpuDevices, WhatIsCompiledBesideADriverIsStoredAndASecondServiceHits) {
  const test::TempDir cache;
  Options options;
  options.cache_dir = cache.path() / "cache";
  const Request of_template{"scaled_softmax_fwd", {{"dtype", "f32"}}};
  const Request of_source = source(kAddSource);
  for (const bool is_first : {true, false}) {
    auto own = test::value_of(Service::open(options));
    for (const Request& request : {of_template, of_source}) {
      const auto kernel = own.get(request, own.devices().at(0));
      ASSERT_TRUE(kernel) << kernel.error().message;
    }
    const Statistics counted = own.statistics();
    EXPECT_EQ(counted.compiled, is_first ? 2U : 0U);
    EXPECT_EQ(counted.disk_hits, is_first ? 0U : 2U);
    EXPECT_EQ(counted.not_stored, 0U);
    EXPECT_EQ(counted.loaded, 2U);
  }
}

}  // namespace
}  // namespace kiln::gpu_test
