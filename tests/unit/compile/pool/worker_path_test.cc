#include "compile/pool/worker_path.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace kiln::compile {
namespace {

std::filesystem::path make_executable(const std::filesystem::path& path) {
  std::ofstream(path) << "#!/bin/sh\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(WorkerPath, AGivenPathIsNeverReplacedByAnother) {
  const test::TempDir folder;
  const auto there = make_executable(folder.path() / "there");
  EXPECT_EQ(find_worker({.path = there}).value(), there);
  const auto missing = folder.path() / "missing";
  const auto found = find_worker({.path = missing});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(found.error().message.find(missing.native()), std::string::npos);

  std::ofstream(folder.path() / "plain") << "no program";
  const auto plain = find_worker({.path = folder.path() / "plain"});
  ASSERT_FALSE(plain);
  EXPECT_NE(plain.error().message.find("KILN_WORKER"), std::string::npos);
  EXPECT_FALSE(find_worker({.path = folder.path()}));
}

TEST(WorkerPath, WithoutAHintItIsSoughtBesideThisProgram) {
  const auto found = find_worker({});
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (found)
    EXPECT_EQ(found->parent_path(), here);
  else
    EXPECT_NE(found.error().message.find(here.native()), std::string::npos);
}

TEST(WorkerPath, TheStandardHeadersLieBesideTheWorkerThatASettingNames) {
  const test::TempDir folder;
  const auto worker = folder.path() / "kiln-worker";
  EXPECT_NE(find_standard_headers(worker).parent_path(), folder.path());
  std::filesystem::create_directory(folder.path() / "standard_headers");
  EXPECT_EQ(find_standard_headers(worker), folder.path() / "standard_headers");
  const auto found = find_standard_headers();
  EXPECT_TRUE(found.empty() || found.filename() == "standard_headers");
}

}  // namespace
}  // namespace kiln::compile
