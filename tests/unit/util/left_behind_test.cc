#include "util/left_behind.h"

#include <future>
#include <stdexcept>

#include "tests/support/test.h"

namespace kiln {
namespace {

void say_nothing(bool /*silent*/) {}

TEST(LeftBehindTest, WhatReturnsInTimeIsReturnedAndWhatItThrowsIsThrown) {
  EXPECT_EQ(call_or_leave<int>([] { return 7; }, 1min, say_nothing), 7);
  EXPECT_THROW(std::ignore = call_or_leave<int>(
                   []() -> int { throw std::runtime_error("x"); }, 1min, say_nothing),
               std::runtime_error);
}

TEST(LeftBehindTest, WhatTakesTooLongIsLeftAndSaysWhenItIsBack) {
  struct State {
    std::promise<void> go_on;
    std::promise<void> is_back;
    std::atomic<bool> is_silent{false};
  };
  const auto state = std::make_shared<State>();
  const auto begun = std::chrono::steady_clock::now();
  const auto result = call_or_leave<int>(
      [state] {
        state->go_on.get_future().wait();
        return 7;
      },
      20ms,
      [state](bool silent) {
        state->is_silent = silent;
        if (!silent)
          state->is_back.set_value();
      });
  EXPECT_FALSE(result);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 20ms);
  EXPECT_TRUE(state->is_silent);
  auto back = state->is_back.get_future();
  EXPECT_EQ(back.wait_for(10ms), std::future_status::timeout);
  state->go_on.set_value();
  EXPECT_EQ(back.wait_for(1min), std::future_status::ready);
  EXPECT_FALSE(state->is_silent);
}

}  // namespace
}  // namespace kiln
