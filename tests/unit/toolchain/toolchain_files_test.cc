#include "toolchain/toolchain_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::device {
namespace {

constexpr std::string_view kId = "65be0db342ad51a06876e71e210bccc5aa8322cf";

/// The first record; nullopt if there is none.
Result<std::optional<Toolchain>> read_recorded(const OwnFolder& folder) {
  auto records = KILN_TRY(read_records(folder));
  return records.empty() ? std::nullopt : std::optional(std::move(records.front()));
}

class ToolchainFiles : public testing::Test {
 protected:
  const test::TempDir dir_;
  const std::filesystem::path folder_ = dir_.path() / "toolchains";
  const NvrtcFacts facts_{{13, 0}, {{7, 5}, {9, 0}, {12, 1}}};
};

TEST_F(ToolchainFiles, AHintIsReadBack) {
  EXPECT_EQ(read_hint(folder_, kId), std::nullopt);
  ASSERT_TRUE(write_hint(folder_, kId, facts_));
  EXPECT_EQ(read_hint(folder_, kId), facts_);
  EXPECT_EQ(read_hint(folder_, "abcd"), std::nullopt);
}

TEST_F(ToolchainFiles, TheFolderIsPrivateAndNoTemporaryStays) {
  ASSERT_TRUE(write_hint(folder_, kId, facts_));
  ASSERT_TRUE(write_hint(folder_, kId, facts_));
  struct stat info {};
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  EXPECT_THAT(dir_.files(), SizeIs(1));
}

TEST_F(ToolchainFiles, AHintOfAnotherLibraryUnderThisNameIsNotBelieved) {
  ASSERT_TRUE(write_hint(folder_, "abcd", facts_));
  std::filesystem::rename(folder_ / "abcd.json",
                          folder_ / (std::string(kId) + ".json"));
  EXPECT_EQ(read_hint(folder_, kId), std::nullopt);
}

TEST_F(ToolchainFiles, NoTruncatedHintIsBelieved) {
  ASSERT_TRUE(write_hint(folder_, kId, facts_));
  const auto path = dir_.files().at(0);
  const std::string whole = read_text_file(path, 4096).value();
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
    test::write_file(path, as_bytes(whole.substr(0, size)));
    EXPECT_EQ(read_hint(folder_, kId), std::nullopt) << size;
  }
}

TEST_F(ToolchainFiles, NoForeignJsonIsBelieved) {
  const auto path = folder_ / (std::string(kId) + ".json");
  for (
      const char* text :
      {"null", "[]", "{}", "7", "{\"format\":1}",
       R"({"format":2,"nvrtc":"65be","builtins":"","version":"13.0","architectures":["7.5"]})",
       R"({"format":1,"nvrtc":65,"builtins":"","version":"13.0","architectures":["7.5"]})",
       R"({"format":1,"nvrtc":"../..","builtins":"","version":"13.0","architectures":["7.5"]})",
       R"({"format":1,"nvrtc":"65be","builtins":"","version":13,"architectures":["7.5"]})",
       R"({"format":1,"nvrtc":"65be","builtins":"","version":"13.0","architectures":[]})",
       R"({"format":1,"nvrtc":"65be","builtins":"","version":"13.0","architectures":[75]})",
       R"({"format":1,"nvrtc":"65be","builtins":"","version":"13.0","architectures":["9.0a"]})",
       R"({"format":1,"nvrtc":"65be","builtins":"","version":"13.0","architectures":"7.5"})"}) {
    test::write_file(path, as_bytes(text));
    EXPECT_EQ(read_hint(folder_, kId), std::nullopt) << text;
    test::write_file(folder_ / "recorded.json", as_bytes(text));
    EXPECT_EQ(read_recorded(folder_).error().code, ErrorCode::kCorrupt) << text;
  }
}

TEST_F(ToolchainFiles, TheRecordIsReadBackAsNotInstalled) {
  EXPECT_EQ(read_recorded(folder_).value(), std::nullopt);
  Toolchain toolchain;
  toolchain.id = {std::string(kId), "08d17e32"};
  toolchain.facts = facts_;
  toolchain.nvrtc = "/usr/local/cuda/lib64/libnvrtc.so.13";
  ASSERT_TRUE(write_recorded(folder_, toolchain));
  const auto recorded = read_recorded(folder_).value();
  ASSERT_TRUE(recorded);
  EXPECT_EQ(recorded->id, toolchain.id);
  EXPECT_EQ(recorded->facts, facts_);
  EXPECT_EQ(recorded->name(), "nvrtc-13.0-65be0db3");
  EXPECT_FALSE(recorded->installed());
  EXPECT_EQ(recorded->linker, std::nullopt);
}

TEST_F(ToolchainFiles, TheSameRecordIsLeftAsItIs) {
  namespace fs = std::filesystem;
  Toolchain toolchain;
  toolchain.id = {std::string(kId), "08d17e32"};
  toolchain.facts = facts_;
  ASSERT_TRUE(write_recorded(folder_, toolchain));
  const fs::path file = *fs::directory_iterator(folder_);
  const auto for_all = fs::perms(0644);
  fs::permissions(file, for_all);
  ASSERT_TRUE(write_recorded(folder_, toolchain));
  EXPECT_EQ(fs::status(file).permissions(), for_all)
      << "an ordinary user's job reads it";
  toolchain.linker = LinkerId{"157d67e6", ""};
  ASSERT_TRUE(write_recorded(folder_, toolchain));
  EXPECT_EQ(read_recorded(folder_).value()->linker, toolchain.linker);
}

TEST_F(ToolchainFiles, ARecordThatAnybodyCanWriteIsNotKeptBehindAnother) {
  namespace fs = std::filesystem;
  Toolchain toolchain;
  toolchain.facts = facts_;
  for (const char* const id : {"aa", "bb"}) {
    toolchain.id = {id, ""};
    ASSERT_TRUE(write_recorded(folder_, toolchain));
    fs::permissions(fs::directory_iterator(folder_)->path(), fs::perms(0666));
    EXPECT_EQ(read_records(folder_).error().code, ErrorCode::kUntrusted);
  }
  ASSERT_TRUE(write_recorded(folder_, toolchain));
  const auto records = read_records(folder_).value();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_EQ(records[0].id.nvrtc, "bb");
}

TEST_F(ToolchainFiles, ARecordReplacesNoneOfAnotherToolchainAndTheNewestIsFirst) {
  const auto of = [&](const std::string& id) {
    Toolchain toolchain;
    toolchain.id = {id, "08d1"};
    toolchain.facts = facts_;
    return toolchain;
  };
  const auto ids = [&] {
    std::vector<std::string> list;
    const auto records = read_records(folder_).value();
    for (const Toolchain& each : records) list.push_back(each.id.nvrtc);
    return list;
  };
  EXPECT_TRUE(ids().empty());
  for (const char* const id : {"aa", "bb", "cc", "aa"})
    ASSERT_TRUE(write_recorded(folder_, of(id)));
  EXPECT_EQ(ids(), (std::vector<std::string>{"aa", "cc", "bb"}));
  EXPECT_EQ(read_recorded(folder_).value()->id.nvrtc, "aa");
  Toolchain linked = of("bb");
  linked.linker = LinkerId{"157d67e6", ""};
  ASSERT_TRUE(write_recorded(folder_, linked));
  ASSERT_TRUE(write_recorded(folder_, of("dd")));
  EXPECT_EQ(read_records(folder_).value()[1].linker, linked.linker);
  for (int i = 10; i < 40; ++i)
    ASSERT_TRUE(write_recorded(folder_, of(std::to_string(i))));
  EXPECT_EQ(ids().size(), kMostRecorded);
  EXPECT_EQ(ids().front(), "39");
}

TEST_F(ToolchainFiles, OfManyRecordedAtOneMomentNoneIsLost) {
  for (int round = 0; round < 20; ++round) {
    const std::filesystem::path folder = dir_.path() / std::to_string(round);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kMostRecorded; ++i)
      threads.emplace_back([&, i] {
        Toolchain toolchain;
        toolchain.id = {fmt::format("{:02x}", i), ""};
        toolchain.facts = facts_;
        EXPECT_TRUE(write_recorded(folder, toolchain));
      });
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(read_records(folder).value().size(), kMostRecorded);
    const std::filesystem::directory_iterator files(folder);
    EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "only the record is left";
  }
}

TEST_F(ToolchainFiles, ADamagedRecordBehindTheFirstCostsThatRecord) {
  Toolchain toolchain;
  toolchain.facts = facts_;
  toolchain.id = {"aa", ""};
  const std::string other = record_of(toolchain);
  toolchain.id = {"bb", ""};
  for (const auto& [before, count] : {std::pair{"[7, null, " + other + "]", 2U},
                                      {"{\"x\": " + other + "}", 2U},
                                      {std::string("\"none\""), 1U},
                                      {std::string("[[[]]]"), 1U}}) {
    std::string text = record_of(toolchain);
    text.insert(text.rfind('}'), ", \"before\": " + before);
    EXPECT_EQ(parse_records(text).size(), count) << text;
  }
}

TEST_F(ToolchainFiles, TheRecordHasWhatLinked) {
  Toolchain toolchain;
  toolchain.id = {std::string(kId), "08d17e32"};
  toolchain.facts = facts_;
  for (const LinkerId& linker :
       {LinkerId{"157d67e6", ""}, LinkerId{"157d67e6", "ab"}}) {
    toolchain.linker = linker;
    ASSERT_TRUE(write_recorded(folder_, toolchain));
    EXPECT_EQ(read_recorded(folder_).value()->linker, linker);
  }
  toolchain.linker = LinkerId{"../..", ""};
  ASSERT_TRUE(write_recorded(folder_, toolchain));
  EXPECT_EQ(read_recorded(folder_).value()->linker, std::nullopt);
}

TEST_F(ToolchainFiles, ARootThatCannotBeWrittenIsAnErrorThatNamesIt) {
  EXPECT_THAT(write_hint(std::filesystem::path("/proc/kiln/toolchains"), kId, facts_),
              test::IsError(ErrorCode::kIo, HasSubstr("mkdir /proc/kiln/toolchains")));
}

}  // namespace
}  // namespace kiln::device
