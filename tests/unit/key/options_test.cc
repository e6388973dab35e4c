// NVRTC's spellings of -I, -D and -U, and options that a cache cannot serve.

#include "key/options.h"

#include <filesystem>

#include "tests/support/test.h"

namespace kiln::key {
namespace {

SourceKeyInput with_options(std::vector<std::string> options) {
  SourceKeyInput input;
  input.options = std::move(options);
  return input;
}

TEST(Options, AreSortedIntoTheListsTheyBelongTo) {
  const auto input = normalized(with_options({"-I",
                                              "/a",
                                              "-I/b",
                                              "-I=/c",
                                              "-I /d",
                                              "--include-path=/e",
                                              "--include-path",
                                              "/f",
                                              "-DA",
                                              "-D",
                                              "B=1",
                                              "--define-macro=C",
                                              "-UA",
                                              "--use_fast_math",
                                              "--undefine-macro",
                                              "C",
                                              "-include",
                                              "x.h",
                                              "--pre-include=y.h",
                                              "-G"}));
  ASSERT_TRUE(input) << input.error().message;
  EXPECT_THAT(input->include_dirs, ElementsAre("/a", "/b", "/c", "/d", "/e", "/f"));
  std::vector<std::string> macros;
  for (const Macro& macro : input->macros)
    macros.push_back((macro.action == MacroAction::kDefine ? "+" : "-") + macro.text);
  EXPECT_THAT(macros, ElementsAre("+A", "+B=1", "+C", "-A", "-C"));
  EXPECT_THAT(input->options, ElementsAre("--use_fast_math", "--pre-include=x.h",
                                          "--pre-include=y.h", "-G"));
  EXPECT_THAT(pre_includes(input->options), ElementsAre("x.h", "y.h"));
  EXPECT_TRUE(check_normalized(*input));
}

TEST(Options, ComeBehindTheListsGivenBesidesThem) {
  SourceKeyInput given = with_options({"-I/second", "-DB"});
  given.include_dirs = {"/first"};
  given.macros = {{MacroAction::kDefine, "A"}};
  const auto input = normalized(given);
  ASSERT_TRUE(input);
  EXPECT_THAT(input->include_dirs, ElementsAre("/first", "/second"));
  EXPECT_EQ(input->macros[1].text, "B");
}

TEST(Options, MakeIncludeDirectoriesAbsolute) {
  const auto input = normalized(with_options({"-Iinclude"}));
  ASSERT_TRUE(input);
  EXPECT_EQ(input->include_dirs[0], std::filesystem::current_path() / "include");
}

TEST(Options, WithoutTheirValueAreRefusedByName) {
  for (const char* option : {"-I", "-D", "-I=", "--define-macro", "-include"}) {
    const auto input = normalized(with_options({option}));
    ASSERT_FALSE(input) << option;
    EXPECT_EQ(input.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(input.error().message, HasSubstr(option));
  }
}

TEST(Options, ThatAreNotNormalizedAreNoticed) {
  EXPECT_FALSE(check_normalized(with_options({"-I/a"})));
  EXPECT_FALSE(check_normalized(with_options({"-DA"})));
  SourceKeyInput relative;
  relative.include_dirs = {"a"};
  EXPECT_FALSE(check_normalized(relative));
}

}  // namespace
}  // namespace kiln::key
