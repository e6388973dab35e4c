#include "device/memory_device.h"

#include <gmock/gmock.h>

#include "tests/support/is_error.h"
#include "tests/unit/device/loading.h"

namespace kiln::device {
namespace {

class DeviceMemory : public testing::Test {
 protected:
  [[nodiscard]] void* allocate(CUcontext where) const {
    test::make_current(simulated_, where);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(simulated_.find<decltype(::cuMemAlloc)>("cuMemAlloc_v2")(&pointer, 64),
              CUDA_SUCCESS);
    test::make_current(simulated_, contexts_[0]->handle());
    return reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  }

  [[nodiscard]] std::string why_not(const void* pointer) const {
    const auto why = why_not_memory_of(*contexts_[0], pointer);
    EXPECT_TRUE(why) << why.error().message;
    return why.value_or("");
  }

  void SetUp() override { test::make_current(simulated_, contexts_[0]->handle()); }

  const test::SimulatedDriver simulated_{"9.0,8.6"};
  const std::array<std::shared_ptr<const PrimaryContext>, 2> contexts_{
      test::context_of(simulated_, 0), test::context_of(simulated_, 1)};
};

TEST_F(DeviceMemory, OfAContextIsItsOwnAndNobodyElses) {
  auto* const own = static_cast<char*>(allocate(contexts_[0]->handle()));
  EXPECT_EQ(why_not(own), "");
  EXPECT_EQ(why_not(own + 63), "") << "anywhere in it";
  EXPECT_EQ(why_not(allocate(contexts_[1]->handle())),
            "it is memory of device 1 (Simulated 8.6)");
  CUcontext second = nullptr;
  ASSERT_EQ(simulated_.find<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(
                &second, 0, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(why_not(allocate(second)),
            "it is memory of another context of device 0 (Simulated 9.0)");
}

TEST_F(DeviceMemory, IsNotTheHostsUnlessTheDriverKnowsIt) {
  void* pinned = nullptr;
  ASSERT_EQ(
      simulated_.find<decltype(::cuMemAllocHost)>("cuMemAllocHost_v2")(&pinned, 8),
      CUDA_SUCCESS);
  const int unknown = 0;
  EXPECT_EQ(why_not(pinned), "");
  EXPECT_EQ(why_not(&unknown), "it is no memory that the driver knows");
  EXPECT_TRUE(is_host_readable(*contexts_[0], pinned).value());
  EXPECT_TRUE(is_host_readable(*contexts_[0], &unknown).value());
  EXPECT_FALSE(
      is_host_readable(*contexts_[0], allocate(contexts_[0]->handle())).value());
}

TEST_F(DeviceMemory, ThatTheDriverDoesNotTellOfIsItsError) {
  ASSERT_EQ(simulated_.inject("cuPointerGetAttributes", 1, CUDA_ERROR_INVALID_CONTEXT),
            0);
  EXPECT_THAT(why_not_memory_of(*contexts_[0], this),
              test::IsError(ErrorCode::kDevice,
                            testing::HasSubstr(
                                "cuPointerGetAttributes, device 0 (Simulated 9.0)")));
}

}  // namespace
}  // namespace kiln::device
