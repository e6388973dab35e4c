// Text that is kept beside its test, so that a change of it is seen.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/support/paths.h"

namespace kiln::test {

/// Compares `text` with what is kept as `path` in the source tree. With
/// KILN_UPDATE_GOLDEN in the environment it writes the file instead, and fails where
/// the two differed.
inline void expect_golden(std::string_view path, const std::string& text) {
  const std::string file = paths::source(path);
  std::ifstream stream(file, std::ios::binary);
  const std::string kept{std::istreambuf_iterator<char>(stream), {}};
  if (kept == text)
    return;
  if (std::getenv("KILN_UPDATE_GOLDEN") != nullptr)
    std::ofstream(file, std::ios::binary) << text;
  EXPECT_EQ(kept, text)
      << file
      << " differs; where that is meant, run the test with KILN_UPDATE_GOLDEN=1 "
      << "and commit the file";
}

}  // namespace kiln::test
