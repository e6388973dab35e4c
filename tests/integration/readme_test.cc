// Every command in the README, run as it stands there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/program.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using testing::AnyOf;

/// The lines of its code blocks.
std::vector<std::string> code_lines() {
  const std::string readme = read_text_file(KILN_TEST_README, 1U << 20U).value();
  std::vector<std::string> lines;
  bool in_code = false;
  for (std::size_t at = 0; at < readme.size();) {
    const std::size_t end = std::min(readme.find('\n', at), readme.size());
    const std::string line = readme.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("```"))
      in_code = !in_code;
    else if (in_code)
      lines.push_back(line);
  }
  return lines;
}

/// With real keys in the places of those that the README made up.
std::string with_keys(std::string command, const std::vector<std::string>& keys) {
  std::size_t next = 0;
  for (const std::string_view made_up : {"3f9c21", "b7d004"}) {
    const std::size_t at = command.find(made_up);
    if (at != std::string::npos)
      command.replace(at, made_up.size(), keys.at(next++ % keys.size()));
  }
  return command;
}

TEST(ReadmeTest, EveryCommandDoesWhatItSays) {
  test::KilnProgram kiln;
  kiln.use_fake_nvrtc();  // the commands are what is tried, not the compiler
  kiln.write("kernel.cu",
             "#include \"scale.h\"\ntemplate <typename T>\n"
             "__global__ void scale(T* x) { x[threadIdx.x] *= N; }\n");
  kiln.write("include/scale.h", "#pragma once\n");
  kiln.write("node3.json", kiln.run({"doctor", "--json"}).out);

  std::string manifest;
  std::vector<std::string> commands;
  for (const std::string& line : code_lines()) {
    if (line.starts_with("{"))
      manifest += line + "\n";
    else if (line.starts_with("kiln "))
      commands.push_back(line);
  }
  ASSERT_FALSE(manifest.empty());
  ASSERT_GE(commands.size(), 15U);
  kiln.write("kernels.jsonl", manifest);

  std::vector<std::string> keys;
  for (const std::string& command : commands) {
    const auto finished = kiln.run_in_shell(with_keys(command, keys));
    // What doctor finds wrong is this machine's business.
    if (command.starts_with("kiln doctor"))
      EXPECT_THAT(finished.status, AnyOf(0, 1, 3)) << command << finished.text();
    else
      EXPECT_EQ(finished.status, 0) << command << finished.text();
    if (keys.empty()) {
      const auto listed = kiln.json_of({"ls", "--limit", "2"});
      for (const auto& entry : listed["entries"]) keys.push_back(entry["key"]);
      ASSERT_EQ(keys.size(), 2U) << command;
    }
  }
}

}  // namespace
}  // namespace kiln
