// Text that is kept beside its test, so that a change of it is seen.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "util/read_file.h"

namespace kiln::test {

/// Compares `text` with the kept `file`. With KILN_UPDATE_GOLDEN in the environment it
/// writes the file instead, and fails where the two differed.
inline void expect_golden(const std::filesystem::path& file, const std::string& text) {
  const auto kept = read_text_file(file, 1U << 24U);
  if (kept && *kept == text)
    return;
  if (std::getenv("KILN_UPDATE_GOLDEN") != nullptr)
    std::ofstream(file, std::ios::binary) << text;
  EXPECT_EQ(kept.value_or(""), text)
      << file
      << " differs; where that is meant, run the test with KILN_UPDATE_GOLDEN=1 "
      << "and commit the file";
}

}  // namespace kiln::test
