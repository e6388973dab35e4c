// The fixture of the tests of verbs that look at a cache.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace kiln {

class ProgramInspectTest : public testing::Test {
 protected:
  void SetUp() override {
    kiln_.use_fake_nvrtc();
    templates_ = test::write_tiny_templates(kiln_);
    kiln_.set("KILN_TEMPLATE_DIR", templates_);
  }
  nlohmann::json warm(const std::string& what, const std::string& arch) {
    return kiln_.json_of({"warm", "--template", what, "--arch", arch});
  }
  std::string one(const std::string& what, const std::string& arch = "9.0") {
    return warm(what, arch)["entries"][0]["key"];
  }
  std::vector<std::string> list(test::KilnProgram::Arguments more,
                                const char* member = "key") {
    more.insert(more.begin(), "ls");
    std::vector<std::string> values;
    const nlohmann::json listed = kiln_.json_of(more);
    for (const nlohmann::json& entry : listed["entries"])
      values.push_back(entry[member]);
    return values;
  }
  [[nodiscard]] std::filesystem::path object(const std::string& key) const {
    for (const std::filesystem::path& file : kiln_.object_files()) {
      if (file.parent_path().filename().string() + file.filename().string() == key)
        return file;
    }
    return {};
  }
  static void flip_byte(const std::filesystem::path& file, std::uintmax_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char flipped = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(flipped);
  }

  test::KilnProgram kiln_;
  std::string templates_;
};

}  // namespace kiln
