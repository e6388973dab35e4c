// What an operation refuses, and with which words.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kiln/result.h"

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

}  // namespace kiln::ops
