// What older versions of the object format have left, as the program tells of it and
// removes it.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/program.h"

namespace kiln {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
namespace fs = std::filesystem;
using Arguments = test::KilnProgram::Arguments;

class ProgramOlderFormatsTest : public testing::Test {
 protected:
  void SetUp() override {
    kiln_.use_fake_nvrtc();
    kiln_.set("KILN_TEMPLATE_DIR", test::write_tiny_templates(kiln_));
  }
  /// Two objects of ours.
  void warm() {
    kiln_.json_of({"warm", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0"});
  }
  /// As an older program would have left them, last used at the beginning of 2024.
  void add_older(int count) const {
    for (int i = 0; i < count; ++i) {
      const fs::path folder =
          kiln_.cache_dir() / "objects/v0" / fmt::format("{:02x}", i);
      fs::create_directories(folder);
      const fs::path file = folder / std::string(62, 'c');
      std::ofstream(file) << std::string(1024, 'x');
      const std::array<timespec, 2> times{{{1'704'067'200, 0}, {1'704'067'200, 0}}};
      ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times.data(), 0), 0);
    }
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramOlderFormatsTest, AreNamedByLsAndStatsAndGoWithTrimAndClear) {
  warm();
  const int bytes = kiln_.json_of({"stats"})["bytes"];
  add_older(3);
  for (const char* verb : {"ls", "stats"}) {
    const json older = kiln_.json_of({verb})["older_formats"];
    ASSERT_THAT(older, SizeIs(1)) << verb;
    EXPECT_EQ(older[0]["version"], 0);
    EXPECT_EQ(older[0]["objects"], 3);
    EXPECT_EQ(older[0]["bytes"], 3 * 1024);
    EXPECT_EQ(older[0]["last_used"], "2024-01-01T00:00:00Z");
    EXPECT_THAT(kiln_.run({verb}).err,
                HasSubstr("objects/v0: 3 objects, 3.0 KiB of an older format"));
  }
  EXPECT_THAT(kiln_.run({"ls", "--arch", "7.5"}).err, HasSubstr("objects/v0: 3 obj"));
  EXPECT_THAT(kiln_.json_of({"ls"})["entries"], SizeIs(2));

  const Arguments trim{"trim", "--max-size", std::to_string(bytes)};
  Arguments dry = trim;
  dry.emplace_back("--dry-run");
  EXPECT_THAT(kiln_.run(dry).out,
              "would remove 3 entries, 3.0 KiB, 3 of them of an older format\n");
  EXPECT_THAT(kiln_.run({"ls"}).err, HasSubstr("objects/v0: 3 objects"));
  const json trimmed = kiln_.json_of(trim);
  EXPECT_EQ(trimmed["removed"], 3);
  EXPECT_EQ(trimmed["older_formats"], 3);
  EXPECT_EQ(trimmed["freed_bytes"], 3 * 1024);
  EXPECT_THAT(trimmed["keys"], SizeIs(3));
  EXPECT_FALSE(fs::exists(kiln_.cache_dir() / "objects/v0"));
  EXPECT_THAT(kiln_.run({"ls"}).err, Not(HasSubstr("objects/v0")));

  add_older(2);
  for (const Arguments& others :
       {Arguments{"--arch", "9.0", "--older-than", "0s"},
        Arguments{"--template", "tiny"}, Arguments{"--older-than", "30000d"}}) {
    Arguments clear = others;
    clear.insert(clear.begin(), "clear");
    EXPECT_FALSE(kiln_.json_of(clear).contains("older_formats"));
  }
  EXPECT_THAT(kiln_.json_of({"ls"})["entries"], IsEmpty());
  EXPECT_EQ(kiln_.json_of({"clear", "--older-than", "1d", "--dry-run"})["removed"], 2);
  EXPECT_EQ(kiln_.json_of({"clear", "--older-than", "1d"})["older_formats"], 2);
  add_older(2);
  EXPECT_EQ(kiln_.run({"clear", "--all"}).status, 2) << "there is something to confirm";
  EXPECT_THAT(kiln_.run({"clear", "--all", "--yes"}).out,
              "removed 2 entries, 2.0 KiB, 2 of them of an older format\n");
  EXPECT_FALSE(fs::exists(kiln_.cache_dir() / "objects/v0"));
}

TEST_F(ProgramOlderFormatsTest, AClearOnATerminalSaysThatTheyGoAsWell) {
  warm();
  add_older(3);
  EXPECT_THAT(kiln_.run_on_terminal({"clear", "--all"}, "n\n").out,
              AllOf(HasSubstr("remove all 5 entries"),
                    HasSubstr("3 of them of an older format? [y/N]")));
  EXPECT_EQ(kiln_.json_of({"ls"})["older_formats"][0]["objects"], 3);
  EXPECT_EQ(kiln_.run_on_terminal({"clear", "--all"}, "y\n").status, 0);
  EXPECT_FALSE(fs::exists(kiln_.cache_dir() / "objects/v0"));
}

}  // namespace
}  // namespace kiln
