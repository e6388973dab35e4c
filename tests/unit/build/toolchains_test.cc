#include "build/toolchains.h"

#include <gtest/gtest.h>

#include <latch>
#include <stop_token>
#include <thread>
#include <tuple>

#include "tests/support/elf_builder.h"
#include "tests/support/temp_dir.h"

namespace kiln {
namespace {

TEST(ToolchainsTest, AStopEndsTheWaitForASearchOfAnotherThread) {
  const test::TempDir dir;
  const auto nvrtc = dir.path() / "libnvrtc.so.13";
  test::write_library(nvrtc, "65be0db342ad51a06876e71e210bccc5aa8322cf");
  Config config;
  config.nvrtc = nvrtc;
  std::latch asked(1);
  std::latch answer(1);
  Toolchains toolchains(config, {}, [&](auto&, auto&) -> Result<device::NvrtcFacts> {
    if (!asked.try_wait())
      asked.count_down();
    answer.wait();
    return device::NvrtcFacts{{13, 0}, {{9, 0}}};
  });
  std::jthread searches([&] { std::ignore = toolchains.found(); });
  asked.wait();
  std::stop_source stop;
  stop.request_stop();
  const auto chosen = toolchains.choose(std::nullopt, stop.get_token());
  answer.count_down();
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace kiln
