// docs/from-nvcc.md: its code is that of its example, which tests/install builds and
// runs, and NVRTC takes and refuses the options as its table says. readme_test.cc runs
// the commands.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/integration/pages.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace kiln {
namespace {

constexpr const char* kPage = "docs/from-nvcc.md";
constexpr const char* kExample = "tests/examples/from_nvcc/";

TEST(FromNvccPageTest, ItsCodeIsThatOfTheExample) {
  using test::code_lines_of;
  for (const auto& [heading, language, file] :
       {std::array{"Carry the sources in a library", "cmake", "CMakeLists.txt"},
        std::array{"Ask for the kernels", "cpp", "weighted_sums.cc"},
        std::array{"Launch", "cpp", "weighted_sums.cc"},
        std::array{"What travels with a program", "sh", "pack.sh"},
        std::array{"The first build in production", "sh", "pack.sh"}})
    test::expect_in_order(code_lines_of(kPage, heading, language),
                          std::string(kExample) + file);
}

TEST(FromNvccPageTest, ItsBeginningIsAProgramThatNvccTakes) {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing changes them
  const char* const nvcc = std::getenv("KILN_TEST_NVCC");
  const char* const headers = std::getenv("KILN_TEST_CUDA_HEADERS");
  // NOLINTEND(concurrency-mt-unsafe)
  if (nvcc == nullptr || headers == nullptr || !std::filesystem::exists(nvcc))
    GTEST_SKIP() << "no nvcc of CUDA 13 on this machine";
  const std::string file = std::string(kExample) + "before.cu";
  const std::string command = test::lines_of(file).at(1).substr(3);
  ASSERT_TRUE(command.starts_with("nvcc ")) << command;
  test::KilnProgram shell;
  const auto finished = shell.run_in_shell(
      "cd '" + test::paths::source(kExample) + "' && '" + nvcc + "'" +
      command.substr(4) + " -c -o /dev/null -isystem '" + headers + "'");
  EXPECT_EQ(finished.status, 0) << command << finished.text();
}

/// The code spans of a cell of a table.
std::vector<std::string> spans(const std::string& cell) {
  const std::regex span("`([^`]+)`");
  std::vector<std::string> found;
  for (std::sregex_iterator at(cell.begin(), cell.end(), span), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

TEST(FromNvccPageTest, NvrtcTakesTheOptionsThatTheTableKeepsAndRefusesTheOthers) {
  test::KilnProgram kiln;
  kiln.write("k.cu", "extern \"C\" __global__ void k(int* p) { *p = 1; }\n");
  const std::regex row("\\| (`-[^|]*) \\| ([^|]*) \\|");
  int taken = 0;
  int refused = 0;
  for (const std::string& line : test::section_of(kPage, "Options")) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row))
      continue;
    if (cells.str(2).starts_with("nothing")) {
      for (const std::string& option : spans(cells[1])) {
        const auto finished =
            kiln.run_in_shell("kiln compile k.cu --arch 9.0 '--option=" + option + "'");
        EXPECT_NE(finished.status, 0) << option << finished.text();
        ++refused;
      }
      continue;
    }
    std::string command = "kiln compile k.cu --arch 9.0";
    for (const std::string& option : spans(cells[2])) {
      if (option.starts_with("-"))
        command += " " + option;
    }
    const auto finished = kiln.run_in_shell(command);
    EXPECT_EQ(finished.status, 0) << command << finished.text();
    ++taken;
  }
  EXPECT_GE(taken, 12);
  EXPECT_GE(refused, 8);
}

}  // namespace
}  // namespace kiln
