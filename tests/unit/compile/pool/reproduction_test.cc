#include "compile/pool/reproduction.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/temp_dir.h"
#include "tests/support/value_of.h"
#include "util/read_file.h"

namespace kiln::compile {
namespace {

CompileJob job() {
  return {
      .label = "scale",
      .source = "#include \"a b.h\"\n",
      .program_name = "mine.cu",
      .options = {"--gpu-architecture=sm_90a", "-DX='a b'", "-arch", "sm_90a", "-O3"},
      .name_expressions = {"k<float>"},
      .headers = {{"a b.h", "A"},
                  {"sub/c.h", "C"},
                  {"../evil.h", "E"},
                  {"/abs.h", "F"}},
      .nvrtc = {"/x/libnvrtc.so", ""},
      .target = {{{9, 0}, device::ArchSuffix::kA}, device::ImageKind::kCubin},
      .time_limit = std::chrono::milliseconds(1500),
      .memory_limit_bytes = 0};
}

std::string text_of(const std::filesystem::path& path) {
  return read_text_file(path, 1 << 20).value_or("(unreadable)");
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(Reproduction, ItsCommandRunsNothingThatACallerNamed) {
  const test::TempDir root;
  const std::string touch = "touch " + (root.path() / "run").native();
  const std::string hostile = "a\n" + touch + "\n'; " + touch + " #$(" + touch + ")`" +
                              touch + "`\r\n" + touch + "\n#.cu";
  auto wanted = job();
  wanted.label = hostile;
  wanted.program_name = "a'$(kill $$)`kill $$`.cu";
  wanted.options = {"-DX=" + hostile};
  wanted.name_expressions = {hostile};
  wanted.nvrtc.nvrtc = "/x/" + hostile;
  const auto folder = test::value_of(save_reproduction(root.path() / "repro", wanted));
  // A program of that name that writes down what it is given.
  const auto kiln = root.path() / "kiln";
  const auto given = root.path() / "given";
  std::ofstream(kiln) << "#!/bin/sh\nprintf '%s\\0' \"$KILN_NVRTC\" \"$@\" >" +
                             given.native() + "\n";
  std::filesystem::permissions(kiln, std::filesystem::perms::owner_all);
  const auto run =
      "PATH=" + root.path().native() + ":$PATH sh " + (folder / "command").native();
  EXPECT_EQ(std::system(run.c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(root.path() / "run"));
  const auto nul = std::string(1, '\0');
  EXPECT_EQ(text_of(given), "/x/" + hostile + nul + "compile" + nul +
                                (folder / "source" / wanted.program_name).native() +
                                nul + "--arch" + nul + "9.0a" + nul + "-I" + nul +
                                (folder / "headers").native() + nul +
                                "--option=-DX=" + hostile + nul + "--name=" + hostile +
                                nul + "--timeout" + nul + "2" + nul);
}

TEST(Reproduction, HoldsAllThatTheBuildTook) {
  const test::TempDir root;
  const auto folder = test::value_of(save_reproduction(root.path() / "repro", job()));
  EXPECT_EQ(folder.parent_path(), root.path() / "repro");
  EXPECT_EQ(text_of(folder / "source/mine.cu"), job().source);
  EXPECT_EQ(text_of(folder / "headers/a b.h"), "A");
  EXPECT_EQ(text_of(folder / "headers/sub/c.h"), "C");
  EXPECT_NE(text_of(folder / "command").find(reproduction_command(folder, job())),
            std::string::npos);
}

TEST(Reproduction, IsForItsOwnerOnly) {
  const test::TempDir root;
  const auto folder = save_reproduction(root.path() / "repro", job());
  ASSERT_TRUE(folder);
  EXPECT_EQ(mode_of(*folder), 0700U);
  for (const auto& file : root.files()) EXPECT_EQ(mode_of(file), 0600U) << file;
}

TEST(Reproduction, AHeadersNameNeverLeavesTheFolder) {
  const test::TempDir root;
  const auto folder = save_reproduction(root.path() / "repro", job());
  ASSERT_TRUE(folder);
  EXPECT_FALSE(std::filesystem::exists(*folder / "evil.h"));
  EXPECT_EQ(text_of(*folder / "headers/header-3"), "// ../evil.h\nE");
  EXPECT_EQ(text_of(*folder / "headers/header-4"), "// /abs.h\nF");
}

TEST(Reproduction, ASourcesNameNeverLeavesTheFolderNorReplacesAFile) {
  for (const auto& [name, place] :
       {std::pair{"command", "source/command"},
        std::pair{"../evil.cu", "source/evil.cu"}, std::pair{"..", "source/kernel.cu"},
        std::pair{"", "source/kernel.cu"}}) {
    const test::TempDir root;
    CompileJob named = job();
    named.program_name = name;
    const auto folder = test::value_of(save_reproduction(root.path() / "repro", named));
    EXPECT_EQ(text_of(folder / place), job().source) << name;
    EXPECT_NE(text_of(folder / "command").find("kiln compile"), std::string::npos);
  }
}

TEST(Reproduction, TheCommandIsOneThatAShellReadsBack) {
  EXPECT_EQ(reproduction_command("/r/x", job()),
            "kiln compile /r/x/source/mine.cu --arch 9.0a -I /r/x/headers "
            "'--option=-DX='\\''a b'\\''' --option=-O3 '--name=k<float>' --timeout 2");
}

TEST(Reproduction, OnlyTheLastTwentyAreKept) {
  const test::TempDir root;
  std::filesystem::create_directories(root.path() / "repro/keep-this");
  std::set<std::filesystem::path> saved;
  std::filesystem::path last;
  for (int i = 0; i < 25; ++i) {
    CompileJob one = job();
    one.source += std::to_string(i);
    last = save_reproduction(root.path() / "repro", one).value();
    saved.insert(last);
  }
  EXPECT_EQ(saved.size(), 25U);
  std::size_t left = 0;
  for (const auto& folder : saved) left += std::filesystem::exists(folder) ? 1 : 0;
  EXPECT_EQ(left, kReproductionsKept);
  EXPECT_TRUE(std::filesystem::exists(root.path() / "repro/keep-this"));
}

TEST(Reproduction, TheOldestGoIfTheyAreTooLargeTogether) {
  const test::TempDir root;
  const auto save = [&](std::size_t bytes, std::uint64_t bytes_kept) {
    CompileJob large = job();
    large.source.resize(bytes, ' ');
    return save_reproduction(root.path() / "repro", large, bytes_kept).value();
  };
  std::set<std::filesystem::path> saved;
  for (const std::size_t bytes : {10'000U, 10'001U, 10'002U})
    saved.insert(save(bytes, 25'000));
  const auto left = [&] {
    return std::ranges::count_if(
        saved, [](const auto& folder) { return std::filesystem::exists(folder); });
  };
  EXPECT_EQ(left(), 2);
  const auto last = save(50'000, 25'000);
  EXPECT_TRUE(std::filesystem::exists(last)) << "this one is wanted";
  EXPECT_EQ(left(), 0);
}

TEST(Reproduction, TheSameJobTwiceIsSavedTwice) {
  const test::TempDir root;
  const auto first = save_reproduction(root.path() / "repro", job());
  const auto second = save_reproduction(root.path() / "repro", job());
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_NE(*first, *second);
}

TEST(Reproduction, AFolderThatCannotBeMadeIsAnErrorWithItsName) {
  const test::TempDir root;
  std::ofstream(root.path() / "repro") << "a file";
  const auto folder = save_reproduction(root.path() / "repro", job());
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
  EXPECT_NE(folder.error().message.find("repro"), std::string::npos);
}

}  // namespace
}  // namespace kiln::compile
