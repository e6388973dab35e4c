// Files that the command line names: one that is not there, a folder, one that cannot
// be read and one of another format are wrong input in every verb.

#include <filesystem>

#include "tests/integration/program_usage.h"

namespace kiln {
namespace {

class ProgramFilesTest : public ProgramUsageTest {
 protected:
  void SetUp() override {
    kiln_.use_fake_nvrtc();
    kiln_.write("k.cu", test::kTinySource);
    kiln_.write("text", "this is no such file\n");
    fs::permissions(kiln_.folder() / "text", fs::perms(0600));
    fs::create_directory(kiln_.folder() / "folder");
    fs::permissions(kiln_.folder() / "folder", fs::perms(0700));
    // Root may read everything, but not the end of a link that leads to itself.
    fs::create_symlink("loop", kiln_.folder() / "loop");
  }
};

/// Of another format: what the verb makes of the file "text".
enum class Text { kIsWrong, kIsRead };

struct FileCase {
  std::string words;  // @ is the file
  Text text = Text::kIsWrong;
};

TEST_F(ProgramFilesTest, AreWrongInputWhereTheyCannotBeUsed) {
  const std::string remote = " --remote http://127.0.0.1:1;unsigned=1";
  const std::string problem =
      " --pass fwd --dtype bf16 --batch 2 --heads 16 --sq 1024 --skv 1024 --dqk 128 "
      "--mask causal";
  const std::vector<FileCase> cases{
      {"compile ./@ --arch 9.0", Text::kIsRead},  // and does not compile
      {"compile k.cu --arch 9.0 --link @", Text::kIsRead},
      {"why ./@ --arch 9.0", Text::kIsRead},
      {"why k.cu --link @ --arch 9.0", Text::kIsRead},
      {"why --manifest @ --arch 9.0"},
      {"warm --manifest @ --arch 9.0"},
      {"warm --preset ./@ --arch 9.0"},
      {"warm --quick --profile ./@"},
      {"warm --quick --arch 9.0 --push --sign @" + remote},
      {"warm --quick --arch 9.0 --keys @" + remote},
      {"pack -o x.kpack --manifest @ --arch 9.0"},
      {"pack -o x.kpack --sign @"},
      {"pack -o x.kpack --keys @"},
      {"unpack @"},
      {"unpack k.cu --keys @"},
      {"push --pack @" + remote},
      {"push --sign @" + remote},
      {"push --keys @" + remote},
      {"push --auth @" + remote},
      {"push abcdef --auth @" + remote},
      {"pull --manifest @ --arch 9.0" + remote},
      {"pull --keys @ --quick --arch 9.0" + remote},
      {"pull --auth @ --quick --arch 9.0" + remote},
      {"key show @"},
      {"events @"},
      {"doctor --compare @"},
      {"inspect @ --arch 9.0", Text::kIsRead},  // one of several files
      {"attention explain --cudnn 9.5.0 --profile ./@" + problem},
      {"attention warm --kiln --arch 9.0 --preset ./@"},
      {"attention warm --profile ./@ --preset llama-3-8b"},
  };
  for (const auto& [words, text] : cases) {
    for (const std::string file : {"none", "folder", "loop", "text"}) {
      if ((file == "text" && text == Text::kIsRead) ||
          (file == "folder" && words.starts_with("inspect")))
        continue;
      std::string line = words;
      line.replace(line.find('@'), 1, file);
      expect_wrong(test::words(line), {file});
    }
  }
  EXPECT_FALSE(fs::exists(kiln_.folder() / "x.kpack"));
}

TEST_F(ProgramFilesTest, FoldersOfTemplatesAreWrongInputWhereTheyCannotBeRead) {
  for (const char* words : {"templates", "render x:a=b", "warm --quick --arch 9.0",
                            "why --template rope_fwd:dtype=bf16 --arch 9.0"}) {
    for (const char* folder : {"none", "text", "loop"})
      expect_wrong(test::words(words) + Arguments{"--template-dir", folder}, {folder});
  }
}

TEST_F(ProgramFilesTest, AProgramThatCannotStartIsWrongInput) {
  for (const char* program : {"./none", "./folder", "./text", "./loop", "none"}) {
    const auto finished = kiln_.run({"run", "--", program});
    EXPECT_EQ(finished.status, 2) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr(std::string("kiln: run: ") + program + ": "));
  }
}

TEST_F(ProgramFilesTest, AFileWithSomeEventsIsRead) {
  kiln_.write("events", "{\"event\":\"done\",\"name\":\"k\",\"outcome\":\"hit\"}\ncut");
  EXPECT_EQ(kiln_.json_of({"events", kiln_.folder() / "events"})["unreadable"], 1);
  kiln_.write("empty", "");
  EXPECT_EQ(kiln_.json_of({"events", kiln_.folder() / "empty"})["events"], 0);
}

}  // namespace
}  // namespace kiln
