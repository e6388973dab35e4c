#include "tools/output/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "tools/output/standard_streams.h"

namespace kiln::tools {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class TerminalTest : public testing::Test {
 protected:
  const std::unique_ptr<std::FILE, CloseFile> file_{std::tmpfile()};
  const Terminal terminal_{file_.get()};
};

TEST_F(TerminalTest, AFileIsNoTerminalAndGetsNoColour) {
  EXPECT_FALSE(terminal_.is_terminal());
  EXPECT_EQ(terminal_.styled("text", Style::kRed), "text");
  EXPECT_EQ(terminal_.width(), 80);
}

TEST_F(TerminalTest, ColumnsAreAsWideAsTheirWidestCellAndLinesEndWithoutBlanks) {
  EXPECT_EQ(format_table({{"NAME"}, {"SIZE", Align::kRight}, {"NOTE"}},
                         {{"a", "1", ""}, {"longer", "12345", "x"}}, terminal_),
            "NAME     SIZE  NOTE\n"
            "a           1\n"
            "longer  12345  x\n");
}

TEST_F(TerminalTest, ATableThatIsTooWideLosesColumnsAndThenLetters) {
  const std::vector<Column> columns{{.title = "KEY"},
                                    {.title = "NAME", .cut = Cut::kEnd},
                                    {.title = "SIZE", .leave_out = 1},
                                    {.title = "AGE", .leave_out = 2}};
  const std::vector<std::vector<std::string>> rows{
      {"ab12", "a_kernel_of_18_let", "1 KiB", "3 d ago"}};
  const auto in = [&](std::size_t width) {
    const std::string table = format_table(columns, rows, terminal_, width);
    return table.substr(table.find('\n') + 1);
  };
  EXPECT_EQ(in(40), "ab12  a_kernel_of_18_let  1 KiB  3 d ago\n");
  EXPECT_EQ(in(39), "ab12  a_kernel_of_18_let  1 KiB\n");
  EXPECT_EQ(in(30), "ab12  a_kernel_of_18_let\n");
  EXPECT_EQ(in(20), "ab12  a_kernel_of...\n");
  EXPECT_EQ(in(1), "ab12  a_ker...\n") << "no further";
  // A long name is cut before a column goes.
  const std::string table = format_table(
      columns, {{"ab12", std::string(90, 'n'), "1 KiB", "3 d ago"}}, terminal_, 66);
  EXPECT_THAT(table, testing::AllOf(testing::HasSubstr("...  1 KiB  3 d ago"),
                                    testing::HasSubstr(std::string(41, 'n') + "...")));
}

TEST_F(TerminalTest, ACellThatIsCutInTheMiddleKeepsMoreOfItsEnd) {
  const std::vector<Column> columns{{.title = "NAME", .cut = Cut::kMiddle}};
  const auto in = [&](const std::string& cell, std::size_t width) {
    return format_table(columns, {{cell}}, terminal_, width).substr(5);
  };
  EXPECT_EQ(in("kernel:a=1,b=22222", 18), "kernel:a=1,b=22222\n");
  EXPECT_EQ(in("kernel:a=1,b=22222", 15), "ker...1,b=22222\n");
  EXPECT_EQ(in("über:größe=groß", 12), "übe...e=groß\n");
  EXPECT_EQ(in("0123456789", 8), "01...789\n") << "no further than that";
}

TEST_F(TerminalTest, OneIsNotSeveral) {
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(counted(0, "entry", "entries"), "0 entries");
}

TEST_F(TerminalTest, ACellCannotDriveTheTerminal) {
  const std::string table = format_table({{"A"}}, {{"\033[31mred\n"}}, terminal_);
  EXPECT_EQ(table, "A\n?[31mred?\n");
}

TEST_F(TerminalTest, WidthCountsCodePointsNotBytes) {
  EXPECT_EQ(display_width("über"), 4U);
  EXPECT_EQ(format_table({{"A"}, {"B"}}, {{"ü", "x"}, {"ab", "y"}}, terminal_),
            "A   B\nü   x\nab  y\n");
}

TEST_F(TerminalTest, AShortRowIsFilledUp) {
  EXPECT_EQ(format_table({{"A"}, {"B"}}, {{"x"}}, terminal_), "A  B\nx\n");
}

TEST_F(TerminalTest, TextIsBrokenBetweenWordsAndALongWordStaysWhole) {
  EXPECT_EQ(wrapped("one two three\n", 8), "one two\nthree\n");
  EXPECT_EQ(wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrapped("a-very-long-word b c", 8), "a-very-long-word\nb c");
  EXPECT_EQ(wrapped("a a-very-long-word b", 8, 2), "a a-very-long-word\n  b")
      << "not before the indentation";
  EXPECT_EQ(wrapped("    indented text", 8, 4), "    indented\n    text");
  EXPECT_EQ(wrapped("\n\nshort\n", 8), "\n\nshort\n");
  EXPECT_EQ(wrapped("ein übergang", 12), "ein übergang");
  EXPECT_EQ(wrapped("", 8), "");
}

TEST_F(TerminalTest, ACellThatMayWrapGoesOnBelow) {
  const std::vector<Column> columns{{"NAME"}, {.title = "TEXT", .may_wrap = true}};
  EXPECT_EQ(format_table(columns,
                         {{"a", "one two three four five six seven eight nine"},
                          {"bcde", "short"}},
                         terminal_, 26),
            "NAME  TEXT\n"
            "a     one two three four\n"
            "      five six seven eight\n"
            "      nine\n"
            "bcde  short\n");
}

TEST_F(TerminalTest, ALineGoesInThePlaceOfABarThatIsDrawn) {
  testing::internal::CaptureStderr();
  print_error("\r\033[K[##..] 1/2");
  print_error("a warning\n");
  print_error("another\n");
  print_error("\r\033[K[###.] 2/2");
  print_error("\r\033[K");
  print_error("the end\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "\r\033[K[##..] 1/2\r\033[Ka warning\nanother\n"
            "\r\033[K[###.] 2/2\r\033[Kthe end\n");
}

}  // namespace
}  // namespace kiln::tools
