#include "build/toolchains.h"

#include <atomic>
#include <cstdlib>
#include <future>
#include <latch>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "toolchain/toolchain_files.h"

namespace kiln {
namespace {

using Facts = Result<device::NvrtcFacts>;

class ToolchainsTest : public testing::Test {
 protected:
  ToolchainsTest() {
    config_.nvrtc = dir_.path() / "libnvrtc.so.13";
    test::write_library(*config_.nvrtc, "65be0db342ad51a06876e71e210bccc5aa8322cf");
  }

  const test::TempDir dir_;
  Config config_;
  const device::NvrtcFacts facts_{{13, 0}, {{9, 0}}};
};

TEST_F(ToolchainsTest, AStopEndsTheWaitForASearchOfAnotherThread) {
  std::latch asked(1);
  std::latch answer(1);
  Toolchains toolchains(config_, {}, [&](auto&, auto&, auto&) -> Facts {
    if (!asked.try_wait())
      asked.count_down();
    answer.wait();
    return facts_;
  });
  std::jthread searches([&] { std::ignore = toolchains.found(); });
  asked.wait();
  std::stop_source stop;
  stop.request_stop();
  const auto chosen = toolchains.choose(std::nullopt, stop.get_token());
  answer.count_down();
  EXPECT_THAT(chosen, test::IsError(ErrorCode::kCancelled));
}

TEST_F(ToolchainsTest, AStopEndsTheSearchOfItsOwnThreadAndNothingIsKept) {
  std::atomic<bool> hangs = true;
  Toolchains toolchains(config_, {}, [&](auto&, auto&, auto& stop) -> Facts {
    const auto limit = std::chrono::steady_clock::now() + 5s;
    while (hangs && std::chrono::steady_clock::now() < limit) {
      if (stop.stop_requested())
        return fail(ErrorCode::kCancelled, "stopped");
      std::this_thread::sleep_for(1ms);
    }
    return facts_;
  });
  std::stop_source stop;
  stop.request_stop();
  const auto chosen = toolchains.choose(std::nullopt, stop.get_token());
  EXPECT_THAT(chosen, test::IsError(ErrorCode::kCancelled));
  hangs = false;
  EXPECT_TRUE(toolchains.choose(std::nullopt));
}

TEST_F(ToolchainsTest, WhatWasChosenIsHadBesideASearchThatIsRepeatedAndHangs) {
  // It has no builtins, so that it cannot be used, and each search is repeated.
  test::write_library(dir_.path() / "other" / "libnvrtc.so.12", "0bad0bad");
  const char* const set = std::getenv("LD_LIBRARY_PATH");
  const std::string before = set == nullptr ? "" : set;
  ::setenv("LD_LIBRARY_PATH", (dir_.path() / "other").c_str(), 1);
  std::atomic<bool> hangs = false;
  std::promise<void> asked;
  std::latch answer(1);
  Toolchains toolchains(
      config_, {},
      [&](auto&, auto&, auto&) -> Facts {
        if (hangs.exchange(false)) {
          asked.set_value();
          answer.wait();
        }
        return facts_;
      },
      0s);
  ::setenv("LD_LIBRARY_PATH", before.c_str(), 1);
  const device::BuildFor device = device::Target{{{9, 0}}};
  ASSERT_TRUE(toolchains.choose(device));
  hangs = true;
  std::jthread searches([&] { std::ignore = toolchains.found(); });
  EXPECT_EQ(asked.get_future().wait_for(5s), std::future_status::ready);
  auto chosen = std::async(std::launch::async,
                           [&] { return toolchains.choose(device).has_value(); });
  EXPECT_EQ(chosen.wait_for(5s), std::future_status::ready);
  answer.count_down();
  EXPECT_TRUE(chosen.get());
}

TEST_F(ToolchainsTest, ASeedsRecordCountsWhereTheRootHasNone) {
  const auto recorded = [&](const std::string& nvrtc, const char* version) {
    device::Toolchain toolchain;
    toolchain.id.nvrtc = nvrtc;
    toolchain.facts = {*device::parse_cuda_version(version), {{9, 0}}};
    return toolchain;
  };
  const device::Toolchain ours = recorded("aaaaaaaa", "12.9");
  const device::Toolchain theirs = recorded("bbbbbbbb", "13.0");
  const auto ask = [&](auto&, auto&, auto&) -> Facts { return facts_; };
  Toolchains toolchains(
      config_, {dir_.path() / "toolchains"}, ask, 5min, [&](SeedNeed) {
        return std::vector<std::string>{"no record", device::record_of(theirs)};
      });
  EXPECT_EQ(toolchains.recorded().front().id, theirs.id);
  ASSERT_TRUE(toolchains.record(ours));
  EXPECT_EQ(toolchains.recorded().front().id, ours.id);
  config_.nvrtc.reset();
  config_.toolchain = "bbbbbbbb";
  Toolchains asking(config_, {dir_.path() / "toolchains"}, ask, 5min,
                    [&](SeedNeed) { return std::vector{device::record_of(theirs)}; });
  const auto chosen = asking.choose(std::nullopt);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ((*chosen)->toolchain.id, theirs.id) << "a setting asks for the seed's";
}

TEST_F(ToolchainsTest, AnNvrtcThatIsNamedIsTakenWhereverItIsWhateverTheSettingsSay) {
  const auto other = dir_.path() / "other" / "libnvrtc.so.12";
  test::write_library(other, "0bad0bad");
  test::write_library(dir_.path() / "other" / "libnvrtc-builtins.so.12.9", "5e6f");
  const char* const set = std::getenv("LD_LIBRARY_PATH");
  const std::string before = set == nullptr ? "" : set;
  ::setenv("LD_LIBRARY_PATH", (dir_.path() / "other").c_str(), 1);
  config_.toolchain = "65be0db3";
  const auto ask = [&](auto& nvrtc, auto&, auto&) -> Facts {
    return nvrtc == config_.nvrtc ? facts_ : device::NvrtcFacts{{12, 9}, {{9, 0}}};
  };
  Toolchains toolchains(config_, {}, ask);
  ::setenv("LD_LIBRARY_PATH", before.c_str(), 1);
  // There; gone; and another one in its place.
  for (const std::string& path :
       {other.native(), std::string("/nowhere/libnvrtc.so"), config_.nvrtc->native()}) {
    const auto found = toolchains.named("12.9 0bad0bad+5e6f " + path);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ((*found)->toolchain.nvrtc, other);
  }
  EXPECT_THAT(toolchains.named("12.8 0bad0bad+cccc /nowhere/libnvrtc.so"),
              test::IsError(ErrorCode::kUnavailable,
                            testing::HasSubstr("nvidia-cuda-nvrtc-cu12==12.8.*")));
}

/// A seed on a far mount is not asked for a hint: it may be dead.
TEST_F(ToolchainsTest, WhereAnNvrtcIsNamedSeedsAreAskedForNoMoreThanAHint) {
  std::vector<SeedNeed> needs;
  const auto ask = [&](auto&, auto&, auto&) -> Facts { return facts_; };
  const auto seeds = [&](SeedNeed need) {
    needs.push_back(need);
    return std::vector<std::string>();
  };
  Toolchains named(config_, {}, ask, 5min, seeds);
  ASSERT_TRUE(named.choose(std::nullopt));
  EXPECT_EQ(needs, std::vector{SeedNeed::kHint});
  needs.clear();
  config_.nvrtc.reset();
  config_.toolchain = "bbbbbbbb";
  Toolchains asking(config_, {}, ask, 5min, seeds);
  EXPECT_FALSE(asking.choose(std::nullopt));
  ASSERT_EQ(needs.size(), 1U);
  EXPECT_NE(needs[0], SeedNeed::kHint) << "nobody else knows it";
}

TEST_F(ToolchainsTest, OthersThatAreRecordedMayHaveBuiltItUnlessASettingNamesOne) {
  const auto recorded = [&](const std::string& nvrtc, ComputeCapability capability) {
    device::Toolchain toolchain;
    toolchain.id.nvrtc = nvrtc;
    toolchain.facts = {{13, 0}, {capability}};
    return toolchain;
  };
  const auto ask = [&](auto&, auto&, auto&) -> Facts { return facts_; };
  const auto of_seed = [&](SeedNeed) {
    return std::vector{device::record_of(recorded("cccccccc", {9, 0})),
                       device::record_of(recorded("aaaaaaaa", {9, 0}))};
  };
  const auto open = [&] {
    return std::make_unique<Toolchains>(
        config_, Toolchains::Folders{dir_.path() / "toolchains"}, ask, 5min, of_seed);
  };
  const auto ids_beside = [](Toolchains& toolchains, const device::BuildFor& device) {
    const auto chosen = toolchains.choose(device).value();
    std::vector<std::string> ids{chosen->toolchain.id.nvrtc};
    for (const auto& each : toolchains.others(*chosen))
      ids.push_back(each->toolchain.id.nvrtc);
    return ids;
  };
  using Ids = std::vector<std::string>;
  const device::BuildFor hopper = device::Target{{{9, 0}}};
  ASSERT_TRUE(open()->record(recorded("bbbbbbbb", {7, 0})));
  ASSERT_TRUE(open()->record(recorded("aaaaaaaa", {9, 0})));
  EXPECT_EQ(ids_beside(*open(), hopper).size(), 1U) << "KILN_NVRTC names it";
  config_.nvrtc.reset();
  EXPECT_THAT(ids_beside(*open(), hopper),
              testing::IsSupersetOf({"aaaaaaaa", "bbbbbbbb", "cccccccc"}));
  config_.toolchain = "aaaaaaaa";
  EXPECT_EQ(ids_beside(*open(), hopper), Ids{"aaaaaaaa"});
  const auto all = open();
  EXPECT_TRUE(all->others(device::ToolchainChoice{recorded("aaaaaaaa", {9, 0}), "", ""})
                  .empty())
      << "a request names it";
}

}  // namespace
}  // namespace kiln
