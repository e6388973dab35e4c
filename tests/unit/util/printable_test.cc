#include "util/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

TEST(Printable, KeepsTextsAndSendsNoCommandsToATerminal) {
  EXPECT_EQ(printable("k<float*> é 和 𝛼"), "k<float*> é 和 𝛼");
  EXPECT_EQ(printable("a\tb"), "a b");
  EXPECT_EQ(printable("\x1b[31m\nkiln: info: no line\r\x7f"),
            "?[31m?kiln: info: no line??");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "?31m");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
}

TEST(Printable, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a?b");
  EXPECT_EQ(printable("\xe2\x82"), "??");
  EXPECT_EQ(printable("\xe2"
                      "ab"),
            "?ab");
  EXPECT_EQ(printable("\xf8\x88\x80\x80\x80"), "?????");
}

TEST(Printable, CutsAtTheEndOfACharacter) {
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("abcd", 3), "abc…");
  EXPECT_EQ(printable("aé", 3), "aé");
  EXPECT_EQ(printable("aéx", 2), "a…");
  EXPECT_EQ(printable("", 0), "");
}

}  // namespace
}  // namespace kiln
