// The hedge: a get takes at most T_h longer than a build, whatever the remote does.

#include "remote/hedge.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "tests/unit/remote/virtual_time.h"

namespace kiln::remote {
namespace {

using namespace std::chrono_literals;
using Step = Hedge::Step;
using Build = Hedge::Build;
using BuildEnd = Hedge::BuildEnd;

constexpr Duration kWait = 250ms;
constexpr TimePoint kNow = test::kStart;

TEST(Hedge, AHitWithinTheWaitBuildsNothing) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(hedge.deadline(), kNow + kWait);
  EXPECT_EQ(hedge.on_time(kNow + kWait - 1ns), Step::kWait);
  EXPECT_EQ(hedge.on_remote(true), Step::kTakeRemote);
  EXPECT_FALSE(hedge.is_overtaken());
}

TEST(Hedge, AMissStartsTheBuildAtOnce) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(hedge.on_remote(false), Step::kStartBuild);
  EXPECT_EQ(hedge.deadline(), TimePoint::max());
  EXPECT_EQ(hedge.on_time(kNow + 1h), Step::kWait) << "a second build";
  EXPECT_EQ(hedge.on_build(BuildEnd::kEnded), Step::kTakeBuild);
  EXPECT_FALSE(hedge.is_overtaken());
}

TEST(Hedge, AtTheEndOfTheWaitTheBuildStartsBesideIt) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(hedge.on_time(kNow + kWait), Step::kStartBuild);
  EXPECT_EQ(hedge.on_time(kNow + 2 * kWait), Step::kWait);
  EXPECT_EQ(hedge.on_remote(true), Step::kTakeRemote) << "it came first";
}

TEST(Hedge, ABuildThatComesFirstIsTakenAndTheServerHasFailed) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(hedge.on_time(kNow + kWait), Step::kStartBuild);
  EXPECT_EQ(hedge.on_build(BuildEnd::kEnded), Step::kTakeBuild);
  EXPECT_TRUE(hedge.is_overtaken());
}

TEST(Hedge, AMissWhileItBuildsChangesNothing) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(hedge.on_time(kNow + kWait), Step::kStartBuild);
  EXPECT_EQ(hedge.on_remote(false), Step::kWait);
  EXPECT_EQ(hedge.on_build(BuildEnd::kEnded), Step::kTakeBuild);
  EXPECT_FALSE(hedge.is_overtaken());
}

TEST(Hedge, WhereNothingIsBuiltTheRemoteHasItsOwnLimits) {
  Hedge hedge(kNow, kWait, Build::kForbidden);
  EXPECT_EQ(hedge.deadline(), TimePoint::max());
  EXPECT_EQ(hedge.on_time(kNow + 5s), Step::kWait);
  EXPECT_EQ(hedge.on_remote(true), Step::kTakeRemote);
  Hedge missed(kNow, kWait, Build::kForbidden);
  EXPECT_EQ(missed.on_remote(false), Step::kGiveUp);
}

TEST(Hedge, AMachineThatCannotBuildWaitsForTheRemote) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(hedge.on_time(kNow + kWait), Step::kStartBuild);
  EXPECT_EQ(hedge.on_build(BuildEnd::kImpossible), Step::kWait);
  EXPECT_EQ(hedge.deadline(), TimePoint::max()) << "tried again and again";
  EXPECT_EQ(hedge.on_remote(true), Step::kTakeRemote);
}

TEST(Hedge, AMachineThatCannotBuildSaysWhyIfTheRemoteHasNothingEither) {
  Hedge late(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(late.on_time(kNow + kWait), Step::kStartBuild);
  EXPECT_EQ(late.on_build(BuildEnd::kImpossible), Step::kWait);
  EXPECT_EQ(late.on_remote(false), Step::kTakeBuild);
  Hedge early(kNow, kWait, Build::kAllowed);
  EXPECT_EQ(early.on_remote(false), Step::kStartBuild);
  EXPECT_EQ(early.on_build(BuildEnd::kImpossible), Step::kTakeBuild);
}

TEST(Hedge, AWaitOfNothingBuildsAtOnce) {
  Hedge hedge(kNow, 0ms, Build::kAllowed);
  EXPECT_EQ(hedge.on_time(kNow), Step::kStartBuild);
}

/// When the answer is there, of a remote that ends after `remote` and a build that
/// takes `build`.
TimePoint run(Duration remote, bool is_hit, Duration build) {
  Hedge hedge(kNow, kWait, Build::kAllowed);
  const TimePoint remote_ends = kNow + remote;
  TimePoint build_ends = TimePoint::max();
  bool remote_runs = true;
  for (TimePoint now = kNow;;) {
    const TimePoint next = std::min(
        {hedge.deadline(), build_ends, remote_runs ? remote_ends : TimePoint::max()});
    now = std::max(now, next);
    Step step = Step::kWait;
    if (remote_runs && next == remote_ends) {
      remote_runs = false;
      step = hedge.on_remote(is_hit);
    } else if (next == build_ends) {
      step = hedge.on_build(BuildEnd::kEnded);
    } else {
      step = hedge.on_time(now);
    }
    if (step == Step::kStartBuild)
      build_ends = now + build;
    else if (step != Step::kWait)
      return now;
  }
}

TEST(Hedge, NoGetTakesLongerThanABuildAndTheWait) {
  std::mt19937_64 generator(3);
  std::uniform_int_distribution<int> ms(0, 12000);
  for (int i = 0; i < 100000; ++i) {
    const Duration remote = std::chrono::milliseconds(ms(generator));
    const Duration build = std::chrono::milliseconds(ms(generator) / (1 + i % 20));
    const bool is_hit = i % 3 != 0;
    const Duration took = run(remote, is_hit, build) - kNow;
    ASSERT_LE(took, build + kWait) << remote.count() << " " << build.count();
    if (is_hit) {
      ASSERT_LE(took, remote);
    }
  }
}

}  // namespace
}  // namespace kiln::remote
