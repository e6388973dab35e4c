// The fixture of the tests of `kiln warm`.

#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/program.h"

namespace kiln {

inline void expect_sums(const nlohmann::json& report) {
  EXPECT_EQ(report["requested"].get<int>(),
            report["hits"].get<int>() + report["compiled"].get<int>() +
                report["waited"].get<int>() + report["failed"].get<int>())
      << report.dump(1);
  EXPECT_EQ(report["requested"], report["entries"].size());
}

class ProgramWarmTest : public testing::Test {
 protected:
  /// A manifest of `count` different small sources for 9.0.
  std::string write_sources(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines +=
          nlohmann::json{
              {"source",
               fmt::format("__global__ void k{}(int* x) {{ *x = {}; }}", i, i)},
              {"arch", "9.0"}}
              .dump() +
          "\n";
    }
    return kiln_.write("sources.jsonl", lines);
  }

  static std::set<std::string> keys_of(const nlohmann::json& report) {
    std::set<std::string> keys;
    for (const nlohmann::json& entry : report["entries"]) keys.insert(entry["key"]);
    return keys;
  }

  test::KilnProgram kiln_;
};

}  // namespace kiln
