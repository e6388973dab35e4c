// How long the fault tests run: KILN_FAULT_LENGTH multiplies what they inject.

#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace kiln::test {

/// A positive integer; 1 where the variable is not set.
inline unsigned fault_length() {
  const char* const variable = std::getenv("KILN_FAULT_LENGTH");
  const std::string_view text = variable == nullptr ? "1" : variable;
  unsigned length = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), length);
  if (error == std::errc() && end == text.data() + text.size() && length > 0)
    return length;
  ADD_FAILURE() << "KILN_FAULT_LENGTH is '" << text << "', which is no positive number";
  return 1;
}

}  // namespace kiln::test
