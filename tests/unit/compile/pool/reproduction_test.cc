#include "compile/pool/reproduction.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "tests/support/temp_dir.h"
#include "util/read_file.h"

namespace kiln::compile {
namespace {

CompileJob job() {
  return {
      .label = "scale",
      .source = "#include \"a b.h\"\n",
      .options = {"--gpu-architecture=sm_90a", "-DX='a b'", "-arch", "sm_90a", "-O3"},
      .name_expressions = {"k<float>"},
      .headers = {{"a b.h", "A"},
                  {"sub/c.h", "C"},
                  {"../evil.h", "E"},
                  {"/abs.h", "F"}},
      .nvrtc = {"/x/libnvrtc.so", ""},
      .target = {{{9, 0}, device::ArchSuffix::kA}, device::ImageKind::kCubin},
      .ptx = PtxPolicy::kDrop,
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

TEST(Reproduction, HoldsAllThatTheBuildTook) {
  const test::TempDir root;
  const auto folder = save_reproduction(root.path() / "repro", job());
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(folder->parent_path(), root.path() / "repro");
  EXPECT_EQ(text_of(*folder / "kernel.cu"), job().source);
  EXPECT_EQ(text_of(*folder / "headers/a b.h"), "A");
  EXPECT_EQ(text_of(*folder / "headers/sub/c.h"), "C");
  EXPECT_NE(text_of(*folder / "command").find(reproduction_command(*folder, job())),
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

TEST(Reproduction, TheCommandIsOneThatAShellReadsBack) {
  EXPECT_EQ(reproduction_command("/r/x", job()),
            "kiln compile /r/x/kernel.cu --arch 9.0a -I /r/x/headers "
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
