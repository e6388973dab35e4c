// What an operation refuses, and with which words.

#pragma once

#include <string>

#include "kiln/device.h"
#include "kiln/result.h"
#include "ops/arguments.h"
#include "tests/support/test.h"

namespace kiln::ops {

/// The message of a kInvalidArgument; anything else is a failure of the test.
template <typename T>
std::string refusal(const Result<T>& result) {
  if (result) {
    ADD_FAILURE() << "it was not refused";
    return "";
  }
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << result.error().message;
  return result.error().message;
}

/// What an operation says of its pointers.
template <typename Args>
Result<void> check_pointers(const Args& args) {
  const Device device{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};
  const auto launches = plan(args, device, Pointers::kChecked);
  return launches ? Result<void>() : tl::unexpected(launches.error());
}

}  // namespace kiln::ops
