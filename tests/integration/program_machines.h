// The fixture for machines that take from each other what one of them has built: in a
// pack, or from a server.

#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/program.h"

namespace kiln {

class ProgramMachinesTest : public testing::Test {
 protected:
  static constexpr int kObjects = 6;  // of tiny_fwd, for one architecture

  ProgramMachinesTest() {
    kiln_.set("KILN_TEMPLATE_DIR", test::write_tiny_templates(kiln_));
    kiln_.use_fake_nvrtc();
  }

  /// Goes on as another machine, whose cache is empty at first.
  void use_machine(const std::string& name) {
    kiln_.set("KILN_CACHE_DIR", place(name));
  }
  [[nodiscard]] std::string place(const std::string& name) const {
    return kiln_.folder() / name;
  }
  void make_key(const std::string& name) {
    ASSERT_EQ(kiln_.run({"key", "new", place(name)}).status, 0);
  }
  static int hits_of_tier(const nlohmann::json& report, const std::string& tier) {
    int hits = 0;
    for (const nlohmann::json& entry : report["entries"])
      hits += entry["outcome"] == "hit" && entry["tier"] == tier ? 1 : 0;
    return hits;
  }

  test::KilnProgram kiln_;
};

}  // namespace kiln
