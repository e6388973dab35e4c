// Who computes attention on the devices of one process, and how often that is decided
// and said.

#include <dlfcn.h>

#include <atomic>
#include <set>

#include "tests/integration/attention_call/attention_calls.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"

namespace kiln {
namespace {

using attention::Pass;
using ops::AttentionBackend;

// xformers #1045: one process, a 2080 and a 3090.
TEST_F(AttentionCallTest, EachDeviceRunsTheKernelThatWasBuiltForIt) {
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(why(call(i, small_problem())), "done");
    EXPECT_EQ(driver_.loads_on(static_cast<int>(i)), 1U);
  }
  const auto launches = driver_.launches();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].device, 0);
  EXPECT_EQ(launches[1].device, 1);
  EXPECT_THAT(launched(), ElementsAre("attention_fwd", "attention_fwd"));
  std::set<std::string> keys;
  for (const Event& event : take_events()) {
    if (event.kind == Event::Kind::kCompiled)
      keys.insert(event.key);
  }
  EXPECT_THAT(keys, SizeIs(2)) << "one binary for both";
}

TEST_F(AttentionCallTest, GroupedHeadsInFiveDimensionsAreTheSameProblem) {
  attention::Problem problem = small_problem();
  const auto four = ops::flattened({.groups = 2,
                                    .heads = 2,
                                    .group_stride = 2 * problem.dqk,
                                    .head_stride = problem.dqk});
  ASSERT_TRUE(four);
  problem.q.head = four->stride;
  EXPECT_EQ(problem, small_problem());
  EXPECT_EQ(why(call(0, problem)), "done");
  EXPECT_EQ(why(call(1, problem)), "done");
}

TEST_F(AttentionCallTest, TheBackwardPassLaunchesBothOfItsKernels) {
  ASSERT_EQ(why(call(1, small_problem(Pass::kBackward))), "done");
  EXPECT_THAT(launched(), ElementsAre("attention_bwd", "attention_bwd_kv"));
}

TEST_F(AttentionCallTest, AReasonIsAWarningOnceAndInformationAfterwards) {
  for (int turn = 0; turn < 3; ++turn) ASSERT_EQ(why(call(1, small_problem())), "done");
  ASSERT_THAT(lines("warning"), SizeIs(1));
  EXPECT_THAT(lines("warning")[0],
              AllOf(HasSubstr("attention fwd f16 b1 h4/2"), HasSubstr("on device 1"),
                    HasSubstr("run by Kiln's attention_fwd on tensor cores: "),
                    HasSubstr("/nowhere/libcudnn.so.9")));
  EXPECT_THAT(choices("info"), IsEmpty());
  attention::Problem longer = small_problem();
  longer.sq = longer.skv = 320;
  set_strides(longer);
  ASSERT_EQ(why(call(1, longer)), "done");
  EXPECT_THAT(lines("warning"), SizeIs(1));
  EXPECT_THAT(choices("info"), ElementsAre(HasSubstr("sq320")));
}

TEST_F(AttentionCallTest, OfThreadsThatAskAtOnceOneDecidesAndOneBuilds) {
  constexpr std::size_t kThreads = 8;
  const attention::Problem problem = small_problem();
  std::vector<ops::AttentionTensors> with;
  for (std::size_t i = 0; i < kThreads; ++i) with.push_back(tensors(1, problem));
  Service& shared = service();
  const CUstream where = stream(1);
  const Device& there = device(1);
  const CUcontext current = context(1);
  std::atomic<std::size_t> done = 0;
  test::in_threads(kThreads, [&](std::size_t i) {
    test::make_current(driver_, current);
    done += ops::attention_forward(shared, there, where, problem, with[i]).has_value()
                ? 1
                : 0;
  });
  EXPECT_EQ(done, kThreads);
  EXPECT_EQ(choices("warning").size() + choices("info").size(), 1U);
  const auto kinds = take_kinds();
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), Event::Kind::kCompiled), 1);
  EXPECT_THAT(launched(), SizeIs(kThreads));
}

TEST_F(AttentionCallTest, KilnForcedNeverOpensCudnn) {
  // A library that can be opened, and is not.
  const auto cudnn = temp_.path() / "libcudnn.so.9";
  std::filesystem::copy_file(driver_.path(), cudnn);
  const auto is_open = [&] {
    return ::dlopen(cudnn.c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr;
  };
  set("KILN_CUDNN", cudnn);
  set("KILN_ATTENTION", "kiln");
  EXPECT_EQ(choice(1, small_problem()).backend, AttentionBackend::kKiln);
  EXPECT_EQ(choice(1, small_problem()).reason, "KILN_ATTENTION=kiln");
  ASSERT_EQ(why(call(1, small_problem())), "done");
  EXPECT_FALSE(is_open());
  EXPECT_THAT(lines("warning"), IsEmpty());
  EXPECT_THAT(choices("info"), ElementsAre(HasSubstr("KILN_ATTENTION")));
}

TEST_F(AttentionCallTest, CudnnForcedWhereItCannotRunIsUnavailable) {
  set("KILN_ATTENTION", "cudnn");
  for (const auto& result :
       {call(1, small_problem()),
        call_unprepared(0, small_problem(Pass::kBackward), 65536)}) {
    EXPECT_THAT(result, test::IsError(ErrorCode::kUnavailable,
                                      AllOf(HasSubstr("KILN_ATTENTION=cudnn"),
                                            HasSubstr("/nowhere/libcudnn.so.9"))));
  }
  EXPECT_THAT(launched(), IsEmpty());
}

TEST_F(AttentionCallTest, WhatKilnAttentionMayBeIsSaidAtOpen) {
  set("KILN_ATTENTION", "flash");
  EXPECT_THAT(Service::open(options(driver_)),
              test::IsError(ErrorCode::kInvalidArgument,
                            "KILN_ATTENTION: 'flash' is none of best, cudnn and kiln"));
}

TEST_F(AttentionCallTest, WhatAProgramSetsBeatsTheEnvironment) {
  set("KILN_ATTENTION", "cudnn");
  Options with = options(driver_);
  with.attention = AttentionSetting::kKiln;
  auto service = Service::open(with);
  ASSERT_TRUE(service) << service.error().message;
  const auto made = test::prepare(*service, service->devices().at(1), small_problem());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->backend, AttentionBackend::kKiln);
  EXPECT_EQ(made->reason, "Options::attention=kiln");
  EXPECT_THAT(choices("info"), ElementsAre(HasSubstr(": Options::attention")));
  with.attention = AttentionSetting::kCudnn;
  service = Service::open(with);
  ASSERT_TRUE(service) << service.error().message;
  const auto refused =
      test::prepare(*service, service->devices().at(1), small_problem());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr(": Options::attention=cudnn, and "),
                    Not(HasSubstr("KILN_ATTENTION"))));
  with.attention = static_cast<AttentionSetting>(7);
  EXPECT_THAT(Service::open(with),
              test::IsError(ErrorCode::kInvalidArgument,
                            "Options::attention is none of AttentionSetting"));
}

TEST_F(AttentionCallTest, AProblemForNeitherNamesBothReasons) {
  EXPECT_THAT(call(1, small_problem(Pass::kForward, 320, 320)),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("/nowhere/libcudnn.so.9"),
                                  HasSubstr("head dimensions up to 256"))));
}

TEST_F(AttentionCallTest, StatisticsOffAlignmentAreNoMatterToKilnsKernel) {
  attention::Problem problem = small_problem();
  problem.stats = true;
  ops::AttentionTensors with = tensors(1, problem);
  with.stats += 1;
  ASSERT_EQ(why(run(1, problem, with)), "done");
  EXPECT_THAT(launched(), ElementsAre("attention_fwd"));
  ASSERT_THAT(lines("warning"), SizeIs(1));
  EXPECT_THAT(lines("warning")[0], HasSubstr("attention_fwd on tensor cores"));
  // Another kernel, which is not there yet.
  with.q = static_cast<const char*>(with.q) + 2;
  ASSERT_EQ(begin_capture(1), CUDA_SUCCESS);
  EXPECT_THAT(why(run(1, problem, with)), HasSubstr("the stream is being captured"));
  EXPECT_EQ(end_capture(1), CUDA_SUCCESS);
  EXPECT_EQ(why(run(1, problem, with)), "done");
  EXPECT_THAT(launched(), ElementsAre("attention_fwd", "attention_plain_fwd"));
}

TEST_F(AttentionCallTest, PreparedItRunsInACapture) {
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    const attention::Problem problem = small_problem(pass);
    const auto bytes = choice(1, problem).workspace_bytes;
    EXPECT_EQ(why(call_captured(1, problem, bytes)), "done");
  }
  for (const auto& launch : driver_.launches()) EXPECT_TRUE(launch.is_captured != 0);
}

}  // namespace
}  // namespace kiln
