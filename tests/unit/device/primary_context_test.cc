#include "device/primary_context.h"

#include "device/context_scope.h"
#include "tests/support/child_process.h"
#include "tests/support/test.h"
#include "tests/unit/device/loading.h"
#include "util/log.h"

namespace kiln::device {
namespace {

TEST(PrimaryContext, IsRetainedWithItsFirstOwnerAndReleasedWithItsLast) {
  const test::SimulatedDriver simulated("9.0,8.6");
  auto first = test::context_of(simulated, 1);
  auto second = test::context_of(simulated, 1);
  EXPECT_EQ(first->handle(), second->handle());
  EXPECT_EQ(first->device().ordinal, 1);
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 1U);
  EXPECT_EQ(test::current_context(simulated), nullptr) << "retained, not made current";
  first.reset();
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 1U);
  second.reset();
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST(PrimaryContext, KnowsTheLimitsOfItsDevice) {
  const test::SimulatedDriver simulated("9.0,8.6");
  const LaunchLimits hopper = test::context_of(simulated, 0)->limits();
  EXPECT_THAT(hopper.grid, testing::ElementsAre(2147483647, 65535, 65535));
  EXPECT_THAT(hopper.block, testing::ElementsAre(1024, 1024, 64));
  EXPECT_EQ(hopper.shared_bytes, 48U * 1024);
  EXPECT_EQ(hopper.shared_optin_bytes, 227U * 1024);
  EXPECT_TRUE(hopper.has_cooperative_launch);
  EXPECT_EQ(test::context_of(simulated, 1)->limits().shared_optin_bytes, 99U * 1024);
}

TEST(PrimaryContext, ThatTheDriverRefusesNamesTheDeviceTheCallAndTheRemedy) {
  const test::SimulatedDriver simulated("9.0");
  const auto driver = Driver::open(simulated.path(), {}).value().value();
  const Device device = driver.devices().value().at(0);
  for (const char* call :
       {"cuInit", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain"}) {
    ASSERT_EQ(simulated.inject(call, 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
    const auto context = PrimaryContext::retain(driver, device);
    ASSERT_FALSE(context) << call;
    EXPECT_EQ(context.error().code, ErrorCode::kDevice);
    EXPECT_THAT(context.error().message, HasSubstr(call));
    EXPECT_THAT(context.error().message, HasSubstr("device 0"));
    EXPECT_THAT(context.error().message, HasSubstr("; free memory of the device"));
  }
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 0U);
  EXPECT_EQ(simulated.calls("cuDevicePrimaryCtxRelease"), 0U) << "nothing was retained";
}

TEST(PrimaryContext, IsNotReleasedByAForkedChild) {
  const test::SimulatedDriver simulated("9.0");
  auto context = test::context_of(simulated);
  test::ChildProcess child([&] {
    context.reset();
    return static_cast<int>(simulated.calls("cuDevicePrimaryCtxRelease"));
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(PrimaryContext, OfADriverThatHasEndedGoesInSilence) {
  const test::SimulatedDriver simulated("9.0");
  auto context = test::context_of(simulated);
  simulated.deinitialize();
  ASSERT_TRUE(set_log_level("debug"));
  testing::internal::CaptureStderr();
  context.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  ASSERT_TRUE(set_log_level("warning"));
}

TEST(PrimaryContext, ThatCannotBeReleasedIsADebugMessage) {
  const test::SimulatedDriver simulated("9.0");
  auto context = test::context_of(simulated);
  ASSERT_EQ(simulated.inject("cuDevicePrimaryCtxRelease", 1, CUDA_ERROR_UNKNOWN), 0);
  ASSERT_TRUE(set_log_level("debug"));
  testing::internal::CaptureStderr();
  context.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("cuDevicePrimaryCtxRelease"));
  ASSERT_TRUE(set_log_level("warning"));
}

TEST(ContextScope, MakesTheContextCurrentAndGivesBackTheOneBefore) {
  const test::SimulatedDriver simulated("9.0,8.6");
  const auto ours = test::context_of(simulated, 0);
  const auto other = test::context_of(simulated, 1);
  test::make_current(simulated, other->handle());
  {
    const ContextScope outer(*ours);
    ASSERT_EQ(outer.result(), CUDA_SUCCESS);
    EXPECT_EQ(outer.before(), other->handle());
    EXPECT_EQ(test::current_context(simulated), ours->handle());
    {
      const ContextScope inner(*ours);
      EXPECT_EQ(inner.before(), ours->handle());
    }
    EXPECT_EQ(test::current_context(simulated), ours->handle());
  }
  EXPECT_EQ(test::current_context(simulated), other->handle());
  EXPECT_EQ(simulated.calls("cuCtxPushCurrent"), 1U) << "once, where it was needed";
  test::make_current(simulated, nullptr);
}

TEST(ContextScope, LeavesWhatOthersPushedMeanwhile) {
  const test::SimulatedDriver simulated("9.0,8.6");
  const auto ours = test::context_of(simulated, 0);
  const auto other = test::context_of(simulated, 1);
  {
    const ContextScope scope(*ours);
    simulated.find<decltype(::cuCtxPushCurrent)>("cuCtxPushCurrent_v2")(
        other->handle());
  }
  EXPECT_EQ(test::current_context(simulated), other->handle());
}

TEST(ContextScope, ThatCannotPushSaysSoAndPopsNothing) {
  const test::SimulatedDriver simulated("9.0");
  const auto context = test::context_of(simulated);
  ASSERT_EQ(simulated.inject("cuCtxPushCurrent", 1, CUDA_ERROR_INVALID_CONTEXT), 0);
  {
    const ContextScope scope(*context);
    EXPECT_EQ(scope.result(), CUDA_ERROR_INVALID_CONTEXT);
  }
  EXPECT_EQ(simulated.calls("cuCtxPopCurrent"), 0U);
}

}  // namespace
}  // namespace kiln::device
