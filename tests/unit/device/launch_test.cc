#include "device/launch.h"

#include <array>

#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "tests/unit/device/launches.h"

namespace kiln::device {
namespace {

using test::SimulatedDriver;

TEST_F(Launches, ReachTheDriverAsTheyWereAskedFor) {
  const CUstream stream = test::stream_of(simulated_, context(0));
  const auto launched =
      run({.grid = {4, 3, 2}, .block = {32, 2, 1}, .shared_bytes = 128}, stream);
  ASSERT_TRUE(launched) << launched.error().message;
  const auto launches = simulated_.launches();
  ASSERT_EQ(launches.size(), 1U);
  EXPECT_STREQ(launches[0].function, "k");
  EXPECT_EQ(launches[0].device, 0);
  EXPECT_THAT(launches[0].grid, ElementsAre(4, 3, 2));
  EXPECT_THAT(launches[0].block, ElementsAre(32, 2, 1));
  EXPECT_EQ(launches[0].dynamic_shared_bytes, 128U);
  EXPECT_EQ(launches[0].stream, stream);
  EXPECT_THAT(launches[0].cluster, ElementsAre(0, 0, 0));
  EXPECT_EQ(simulated_.calls("cuFuncSetAttribute"), 0U);
}

void store_argument(const kiln_simulated_launch* /*launch*/, void** parameters,
                    void* user) {
  *static_cast<std::uint64_t*>(user) = *static_cast<std::uint64_t*>(parameters[0]);
}

TEST_F(Launches, HandTheArgumentsOver) {
  std::uint64_t seen = 0;
  simulated_.register_kernel("k", &store_argument, static_cast<void*>(&seen));
  pointer_ = 0xabcdef0123456789;
  ASSERT_TRUE(run());
  EXPECT_EQ(seen, pointer_);
}

// --- arguments

TEST_F(Launches, WithTooFewOrTooManyArgumentsAreRefused) {
  std::array<void*, 2> arguments{&pointer_, &pointer_};
  constexpr std::array<std::size_t, 2> kSizes{8, 8};
  EXPECT_THAT(refusal(launch(first(), {}, nullptr, {}, {})),
              HasSubstr("it takes 1 arguments, of 8 bytes, and 0 were given"));
  EXPECT_THAT(refusal(launch(first(), {}, nullptr, arguments, kSizes)),
              HasSubstr("and 2 were given"));
  EXPECT_THAT(
      refusal(launch(first(), {}, nullptr, arguments, std::span(kSizes).first(1))),
      HasSubstr("2 arguments with 1 sizes"));
}

TEST_F(Launches, WithAnArgumentOfAnotherSizeNameItsIndex) {
  const auto module =
      test::load_cubin(test::context_of(simulated_, 0), {.parameters = {8, 1, 24, 4}})
          .value();
  std::array<void*, 4> arguments{&pointer_, &pointer_, &pointer_, &pointer_};
  const Function& function = *module->find("k");
  constexpr std::array<std::size_t, 4> kRight{8, 1, 24, 4};
  constexpr std::array<std::size_t, 4> kWrong{8, 1, 16, 4};
  EXPECT_THAT(
      refusal(launch(function, {}, nullptr, arguments, kWrong)),
      HasSubstr(
          "argument 2 (counted from 0) takes 24 bytes, and a value of 16 was given"));
  EXPECT_TRUE(launch(function, {}, nullptr, arguments, kRight));
}

TEST_F(Launches, WithANullArgumentNameItsIndex) {
  const auto module =
      test::load_cubin(test::context_of(simulated_, 0), {.parameters = {8, 8}}).value();
  std::array<void*, 2> arguments{&pointer_, nullptr};
  constexpr std::array<std::size_t, 2> kSizes{8, 8};
  EXPECT_THAT(refusal(launch(*module->find("k"), {}, nullptr, arguments, kSizes)),
              HasSubstr("argument 1 (counted from 0) is null: give the address of its "
                        "value"));
}

TEST_F(Launches, OfAKernelOfUnknownParametersAreNotChecked) {
  const SimulatedDriver old("9.0");
  ASSERT_EQ(old.remove("cuFuncGetParamInfo"), 0);
  const auto module = test::load_ptx(test::context_of(old)).value();
  EXPECT_TRUE(launch(*module->find("k"), {}, nullptr, {}, {}));
  EXPECT_EQ(old.launches().size(), 1U);
}

// --- geometry

TEST_F(Launches, OfAnEmptyGridLaunchNothingAndSucceed) {
  for (const std::array<std::uint32_t, 3>& grid :
       {std::array<std::uint32_t, 3>{0, 1, 1}, {1, 0, 1}, {1, 1, 0}})
    EXPECT_TRUE(run({.grid = grid}));
  EXPECT_EQ(calls(), 0U);
  EXPECT_FALSE(run({.grid = {0, 1, 1}, .block = {0, 1, 1}}))
      << "what is wrong is wrong for no rows, too";
}

TEST_F(Launches, BeyondADevicesLimitsNameAxisValueAndLimit) {
  EXPECT_THAT(refusal({.grid = {1, 65536, 1}}),
              HasSubstr("grid.y is 65536, and the device's limit is 65535"));
  EXPECT_THAT(refusal({.grid = {0x80000000U, 1, 1}}),
              HasSubstr("grid.x is 2147483648, and the device's limit is 2147483647"));
  EXPECT_THAT(refusal({.block = {1, 1, 65}}),
              HasSubstr("block.z is 65, and the device's limit is 64"));
  EXPECT_THAT(refusal({.block = {32, 0, 1}}),
              HasSubstr("a block of 32 x 0 x 1 threads has no thread"));
}

TEST_F(Launches, OfMoreThreadsThanTheKernelAllowsNameTheLimit) {
  EXPECT_THAT(refusal({.block = {32, 9, 1}}),
              AllOf(HasSubstr("32 x 9 x 1 threads has 288"), HasSubstr("is 256")));
  EXPECT_TRUE(run({.block = {256, 1, 1}}));
}

TEST_F(Launches, OfMoreSharedMemoryThanTheDeviceHasNameEveryFigure) {
  constexpr std::uint32_t kMost = 227 * 1024 - 512;
  EXPECT_THAT(refusal({.shared_bytes = kMost + 1}),
              HasSubstr("231937 bytes of dynamic shared memory, and the limit is "
                        "231936: the device's 232448 a block, less 512"));
  EXPECT_TRUE(run({.shared_bytes = kMost}));
}

TEST_F(Launches, OfMoreThan48KiBOfSharedMemoryAskForItOnce) {
  EXPECT_TRUE(run({.shared_bytes = 48 * 1024 - 512}));
  EXPECT_EQ(simulated_.calls("cuFuncSetAttribute"), 0U);
  for (const std::uint32_t kib : {49U, 200U, 100U, 48U})
    EXPECT_TRUE(run({.shared_bytes = kib * 1024}));
  EXPECT_EQ(simulated_.calls("cuFuncSetAttribute"), 1U);
  EXPECT_EQ(simulated_.launches().size(), 5U);
}

TEST_F(Launches, OfDifferentSharedMemoryAtOnceAllFindRoom) {
  test::in_threads(8U, [this](std::uint32_t thread) {
    for (std::uint32_t kib = 49 + thread; kib < 74 + thread; ++kib)
      EXPECT_TRUE(run({.shared_bytes = kib * 1024}));
  });
  EXPECT_EQ(simulated_.launches().size(), 200U);
}

TEST_F(Launches, ThatCannotAskForSharedMemoryAreErrorsAndAskAgain) {
  ASSERT_EQ(simulated_.inject("cuFuncSetAttribute", 1, CUDA_ERROR_INVALID_VALUE), 0);
  const auto refused = run({.shared_bytes = 65536});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("cuFuncSetAttribute, attribute 8"));
  EXPECT_EQ(calls(), 0U);
  EXPECT_TRUE(run({.shared_bytes = 65536}));
}

// --- clusters and cooperative launches

TEST_F(Launches, InClustersTellTheDriverTheirShape) {
  ASSERT_TRUE(run({.grid = {8, 4, 1}, .cluster = {4, 2, 1}}));
  EXPECT_EQ(simulated_.calls("cuFuncSetAttribute"), 0U) << "8 blocks are portable";
  ASSERT_TRUE(run({.grid = {16, 1, 1}, .cluster = {16, 1, 1}}));
  ASSERT_TRUE(run({.grid = {32, 1, 1}, .cluster = {16, 1, 1}}));
  EXPECT_EQ(simulated_.calls("cuFuncSetAttribute"), 1U);
  EXPECT_EQ(simulated_.calls("cuLaunchKernel"), 0U);
  EXPECT_THAT(simulated_.launches().front().cluster, ElementsAre(4, 2, 1));
}

TEST_F(Launches, InClustersThatDoNotFitTheGridAreRefused) {
  EXPECT_THAT(refusal({.grid = {8, 3, 1}, .cluster = {4, 2, 1}}),
              HasSubstr("grid.y is 3, no multiple of cluster.y, 2"));
  EXPECT_THAT(refusal({.cluster = {0, 1, 1}}), HasSubstr("cluster.x, 0"));
}

TEST_F(Launches, InClustersNeedADeviceThatHasThem) {
  EXPECT_THAT(
      run(second(), {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}),
      test::IsError(
          ErrorCode::kInvalidArgument,
          AllOf(HasSubstr("clusters need compute capability 9.0 or later, and this "
                          "device is 8.6"),
                HasSubstr("on device 1"))));
  EXPECT_EQ(calls(), 0U);
}

TEST_F(Launches, ThatAreCooperativeSaySo) {
  ASSERT_TRUE(run({.grid = {8, 1, 1}, .cooperative = true}));
  ASSERT_TRUE(run({.grid = {8, 1, 1}, .cluster = {2, 1, 1}, .cooperative = true}));
  for (const kiln_simulated_launch& each : simulated_.launches())
    EXPECT_EQ(each.is_cooperative, 1);
  const auto refused = run({.grid = {1U << 20U, 1, 1}, .cooperative = true});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("; launch fewer blocks"));
}

TEST_F(Launches, WithHintsTellTheDriverWhatTheDeviceKnows) {
  const Geometry hints{.grid = {8, 1, 1},
                       .cluster = {2, 1, 1},
                       .programmatic = true,
                       .priority = -2,
                       .preferred_cluster = {4, 1, 1}};
  ASSERT_TRUE(run(hints));
  auto launched = simulated_.launches().back();
  EXPECT_EQ(launched.is_programmatic, 1);
  EXPECT_EQ(launched.has_priority, 1);
  EXPECT_EQ(launched.priority, -2);
  EXPECT_THAT(launched.preferred_cluster, ElementsAre(0, 0, 0)) << "of 10.0 and later";
  Geometry plain = hints;
  plain.cluster = {1, 1, 1};
  ASSERT_TRUE(run(second(), plain));
  launched = simulated_.launches().back();
  EXPECT_EQ(launched.is_programmatic, 0) << "8.6 has none";
  EXPECT_EQ(launched.priority, -2);
  ASSERT_TRUE(run({.priority = 0}));
  EXPECT_EQ(simulated_.launches().back().has_priority, 1);
  ASSERT_TRUE(run({}));
  EXPECT_EQ(simulated_.launches().back().has_priority, 0);
}

TEST_F(Launches, InPreferredClustersThatDoNotFitAreRefused) {
  EXPECT_THAT(
      refusal(
          {.grid = {8, 1, 1}, .cluster = {2, 1, 1}, .preferred_cluster = {3, 1, 1}}),
      HasSubstr("preferred_cluster.x is 3: it must be a multiple of cluster.x, "
                "2, and divide grid.x, 8"));
  EXPECT_THAT(refusal({.grid = {8, 1, 1}, .preferred_cluster = {2, 0, 1}}),
              HasSubstr("preferred_cluster.y is 0"));
}

TEST(LaunchesOnABlackwell, PreferLargerClustersFromCuda128On) {
  const Bytes bytes = test::cubin_for("sm_100", "12.8");
  const Geometry geometry{
      .grid = {8, 1, 1}, .cluster = {2, 1, 1}, .preferred_cluster = {4, 1, 1}};
  for (const auto& [version, expected] : {std::pair{12080, 4U}, std::pair{12070, 0U}}) {
    const SimulatedDriver simulated("10.0");
    ASSERT_EQ(simulated.set_driver_version(version), 0);
    const auto module = LoadedModule::load(test::context_of(simulated),
                                           test::image_of(bytes, "sm_100", {12, 8}))
                            .value();
    ASSERT_TRUE(launch(*module->find("plain"), geometry, nullptr, {}, {}));
    EXPECT_EQ(simulated.launches().back().preferred_cluster[0], expected) << version;
    // Beside a cluster, without which it would have no effect.
    Geometry alone = geometry;
    alone.cluster = {1, 1, 1};
    ASSERT_TRUE(launch(*module->find("plain"), alone, nullptr, {}, {}));
    EXPECT_EQ(simulated.launches().back().cluster[0], expected == 0 ? 0U : 1U);
  }
}

TEST(LaunchesOnAnOldDriver, AreRefusedWhereItLacksTheirFunction) {
  const SimulatedDriver old("9.0");
  ASSERT_EQ(old.set_driver_version(11040), 0);
  ASSERT_EQ(old.remove("cuLaunchKernelEx"), 0);
  const Bytes bytes = test::cubin_for("sm_90", "11.4");
  const auto module =
      LoadedModule::load(test::context_of(old), test::image_of(bytes, "sm_90", {11, 4}))
          .value();
  const Function& plain = *module->find("plain");
  for (const Geometry& geometry : {Geometry{.grid = {2, 1, 1}, .cluster = {2, 1, 1}},
                                   Geometry{.cooperative = true}}) {
    EXPECT_THAT(
        launch(plain, geometry, nullptr, {}, {}),
        test::IsError(ErrorCode::kUnavailable,
                      HasSubstr("need a driver for CUDA 11.8 or later, and this driver "
                                "is for 11.4; install a newer driver")));
  }
  EXPECT_TRUE(launch(plain, {}, nullptr, {}, {}));
  EXPECT_TRUE(launch(plain, {.programmatic = true, .priority = 1}, nullptr, {}, {}));
}

// --- failures of the driver

TEST_F(Launches, ThatEndTheContextSaySoThenAndAfterwards) {
  ASSERT_EQ(simulated_.inject("cuLaunchKernel", 1, CUDA_ERROR_ILLEGAL_ADDRESS), 0);
  for (int i = 0; i < 2; ++i) {
    const auto refused = run();
    ASSERT_THAT(refused, test::IsError(ErrorCode::kDevice));
    EXPECT_THAT(
        refused.error().message,
        AllOf(HasSubstr("cuLaunchKernel, kernel k of softmax (key 0123456789ab) "
                        "on device 0 (Simulated 9.0): CUDA_ERROR_ILLEGAL_ADDRESS "
                        "(700)"),
              HasSubstr("only a new process can use the device again")));
  }
  EXPECT_TRUE(run(second(), {})) << "the other device goes on";
  EXPECT_EQ(test::current_context(simulated_), nullptr);
}

TEST_F(Launches, InAForkedChildNameTheRemedy) {
  ASSERT_EQ(simulated_.inject("cuCtxGetCurrent", 1, CUDA_ERROR_NOT_INITIALIZED), 0);
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("; if this process was forked after CUDA was started, start it "
                        "with exec instead"));
}

}  // namespace
}  // namespace kiln::device
