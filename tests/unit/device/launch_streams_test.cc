// On which stream, in which context: what a launch may go to.

#include <thread>

#include "tests/unit/device/launches.h"

namespace kiln::device {
namespace {

constexpr std::array kDefaultStreams{0, 1, 2};  // null, legacy, per thread

CUstream default_stream(int which) {
  return which == 0 ? nullptr : which == 1 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

TEST_F(Launches, OnADefaultStreamNeedTheKernelsContextOrNone) {
  for (const int which : kDefaultStreams) {
    for (const CUcontext before : {CUcontext{nullptr}, context(0)}) {
      test::make_current(simulated_, before);
      const auto launched = run({}, default_stream(which));
      EXPECT_TRUE(launched) << launched.error().message;
      EXPECT_EQ(test::current_context(simulated_), before);
    }
  }
  EXPECT_EQ(simulated_.launches().size(), 6U);
  for (const kiln_simulated_launch& each : simulated_.launches())
    EXPECT_EQ(each.device, 0);
}

TEST_F(Launches, OnTheDefaultStreamOfAnotherContextNameBothDevices) {
  test::make_current(simulated_, context(1));
  for (const int which : kDefaultStreams)
    EXPECT_THAT(
        refusal({}, default_stream(which)),
        HasSubstr(
            "the default stream is of the current context, of device 1 (Simulated "
            "8.6); make the context of device 0 (Simulated 9.0) current"));
  EXPECT_EQ(test::current_context(simulated_), context(1));
  EXPECT_TRUE(simulated_.launches().empty());
}

TEST_F(Launches, OnAStreamOfAnotherContextAreRefusedBeforeTheDriverSeesThem) {
  const CUstream foreign = test::stream_of(simulated_, context(1));
  for (const CUcontext before : {CUcontext{nullptr}, context(0), context(1)}) {
    test::make_current(simulated_, before);
    EXPECT_THAT(refusal({}, foreign),
                HasSubstr("the stream is of device 1 (Simulated 8.6); pass a stream of "
                          "device 0 (Simulated 9.0)"));
    EXPECT_EQ(test::current_context(simulated_), before);
  }
  EXPECT_TRUE(simulated_.launches().empty());
}

TEST_F(Launches, OnAStreamOfAnotherContextOfTheSameDeviceSayThat) {
  CUcontext made = nullptr;
  ASSERT_EQ(simulated_.find<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(
                &made, 0, 0),
            CUDA_SUCCESS);
  EXPECT_THAT(refusal({}, test::stream_of(simulated_, made)),
              HasSubstr("the stream is of another context of device 0"));
}

TEST_F(Launches, OnAStreamOfTheKernelsGoThereWhateverIsCurrent) {
  const CUstream stream = test::stream_of(simulated_, context(0));
  for (const CUcontext before : {CUcontext{nullptr}, context(0), context(1)}) {
    test::make_current(simulated_, before);
    const auto launched = run({}, stream);
    EXPECT_TRUE(launched) << launched.error().message;
    EXPECT_EQ(test::current_context(simulated_), before);
  }
  EXPECT_EQ(simulated_.launches().size(), 3U);
}

TEST_F(Launches, OnAStreamThatIsGoneAreErrorsBeforeTheLaunch) {
  const CUstream stream = test::stream_of(simulated_, context(0));
  ASSERT_EQ(simulated_.find<decltype(::cuStreamDestroy)>("cuStreamDestroy_v2")(stream),
            CUDA_SUCCESS);
  const auto refused = run({}, stream);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("cuStreamGetCtx, kernel k of softmax"),
                    HasSubstr("; a handle is of another context or was destroyed")));
  EXPECT_EQ(calls(), 0U);
}

TEST_F(Launches, OfTwoDevicesByTwoThreadsGoEachToItsOwn) {
  const auto work = [this](const Function& function) {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(run(function, {}));
  };
  std::thread one(work, std::cref(first()));
  std::thread two(work, std::cref(second()));
  one.join();
  two.join();
  std::array<int, 2> count{};
  for (const kiln_simulated_launch& each : simulated_.launches())
    ++count.at(static_cast<std::size_t>(each.device));
  EXPECT_THAT(count, ElementsAre(100, 100));
}

// --- capture

TEST_F(Launches, AreCaptured) {
  const CUstream stream = test::stream_of(simulated_, context(0));
  const CUstream foreign = test::stream_of(simulated_, context(1));
  test::make_current(simulated_, context(0));
  ASSERT_EQ(simulated_.find<decltype(::cuStreamBeginCapture)>(
                "cuStreamBeginCapture_v2")(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_SUCCESS);
  EXPECT_TRUE(run({}, stream));
  EXPECT_TRUE(run({.shared_bytes = 65536}, stream)) << "asking for more is no work";
  EXPECT_FALSE(run({}, foreign));
  EXPECT_TRUE(run({.grid = {2, 1, 1}, .cluster = {2, 1, 1}}, stream));
  CUgraph graph = nullptr;
  ASSERT_EQ(simulated_.find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(
                stream, &graph),
            CUDA_SUCCESS)
      << "nothing of it disturbed the capture";
  const auto launches = simulated_.launches();
  ASSERT_EQ(launches.size(), 3U);
  for (const kiln_simulated_launch& each : launches) EXPECT_EQ(each.is_captured, 1);
}

}  // namespace
}  // namespace kiln::device
