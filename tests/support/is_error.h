// A result that is an error, and which.

#pragma once

#include <gmock/gmock.h>

#include <string>

#include "kiln/result.h"

namespace kiln::test {

MATCHER_P2(IsError, code, message,
           std::string(negation ? "is not the error " : "is the error ") +
               std::string(to_string(code)) + ", whose message " +
               testing::DescribeMatcher<std::string>(message)) {
  if (arg) {
    *result_listener << "which is no error";
    return false;
  }
  const Error& error = arg.error();
  *result_listener << "which is " << to_string(error.code) << ": " << error.message
                   << "\n";
  return error.code == code &&
         testing::ExplainMatchResult(message, error.message, result_listener);
}

/// With any message.
inline auto IsError(ErrorCode code) {  // NOLINT(readability-identifier-naming)
  return IsError(code, testing::_);
}

}  // namespace kiln::test
