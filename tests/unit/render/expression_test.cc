#include "render/expression.h"

#include <limits>
#include <string>

#include "tests/support/test.h"

namespace kiln::render {
namespace {

class ExpressionTest : public testing::Test {
 protected:
  ExpressionTest() {
    symbols_.add("rows", ValueType::kInteger);
    symbols_.add("word", ValueType::kInteger);  // has no number
    symbols_.add("causal", ValueType::kBoolean);
    symbols_.add("most", ValueType::kInteger);
  }

  [[nodiscard]] Result<std::int64_t> value(std::string_view text) const {
    const auto expression = Expression::parse(text, symbols_);
    if (!expression)
      return tl::unexpected(expression.error());
    return expression->evaluate(values_);
  }

  [[nodiscard]] std::string error(std::string_view text) const {
    const auto result = value(text);
    return result ? "" : result.error().message;
  }

  SymbolTable symbols_;
  std::vector<Value> values_{100, std::nullopt, 1,
                             std::numeric_limits<std::int64_t>::max()};
};

TEST_F(ExpressionTest, OperatorsBindAsInC) {
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(1 + 2) * 3"), 9);
  EXPECT_EQ(value("10 - 4 - 3"), 3);
  EXPECT_EQ(value("100 / 7 % 4"), 2);
  EXPECT_EQ(value("-2 * -3"), 6);
  EXPECT_EQ(value("-7 / 2"), -3);
  EXPECT_EQ(value("-7 % 2"), -1);
  EXPECT_EQ(value("1 + 1 == 2 && 3 < 4 || false"), 1);
  EXPECT_EQ(value("true || false && false"), 1);
  EXPECT_EQ(value("!causal == false"), 1);
  EXPECT_EQ(value("false ? 1 : true ? 2 : 3"), 2);
  EXPECT_EQ(value("rows<=100 ? rows>=100 ? 5 : 6 : 7"), 5);
  EXPECT_EQ(value(" 1\t+\n2 "), 3);
}

TEST_F(ExpressionTest, FunctionsRoundAsTheySay) {
  EXPECT_EQ(value("ceil_div(rows, 7)"), 15);
  EXPECT_EQ(value("ceil_div(0, 7)"), 0);
  EXPECT_EQ(value("ceil_div(-7, 2)"), -3);
  EXPECT_EQ(value("align_up(100, 32)"), 128);
  EXPECT_EQ(value("align_up(128, 32)"), 128);
  EXPECT_EQ(value("min(3, 1, 2)"), 1);
  EXPECT_EQ(value("max(3, rows, 2)"), 100);
}

TEST_F(ExpressionTest, OnlyTheNeededSideIsEvaluated) {
  EXPECT_EQ(value("causal ? 1 : word"), 1);
  EXPECT_EQ(value("causal || 1 / 0 == 1"), 1);
  EXPECT_EQ(value("!causal && word == 1"), 0);
  EXPECT_THAT(error("causal ? word : 1"), HasSubstr("word is not a number here"));
}

TEST_F(ExpressionTest, OverflowIsAnErrorEverywhere) {
  for (const char* text : {"most + 1", "-most - 2", "most * 2", "align_up(most, 2)",
                           "-(-most - 1)", "(-most - 1) / -1"})
    EXPECT_THAT(error(text), HasSubstr("does not fit 64 bits")) << text;
  EXPECT_EQ(value("(-most - 1) % -1"), 0);
  EXPECT_EQ(value("ceil_div(most, 1)"), std::numeric_limits<std::int64_t>::max());
  EXPECT_THAT(error("9223372036854775808"), HasSubstr("does not fit 64 bits"));
}

TEST_F(ExpressionTest, DivisionByZeroIsAnError) {
  for (const char* text : {"1 / 0", "1 % 0", "ceil_div(1, 0)", "align_up(1, 0)"})
    EXPECT_THAT(error(text), HasSubstr("division by zero")) << text;
  EXPECT_THAT(error("ceil_div(1, -1)"), HasSubstr("positive"));
}

TEST_F(ExpressionTest, IntegersAndBooleansDoNotMix) {
  for (const char* text : {"causal + 1", "!rows", "-causal", "rows && true",
                           "rows ? 1 : 2", "true ? 1 : false", "causal < true",
                           "1 < 2 < 3", "rows == causal", "min(1, true)"})
    EXPECT_THAT(error(text), HasSubstr("needs a")) << text;
}

TEST_F(ExpressionTest, AnUnknownNameIsFoundWhenParsedWithTheNearest) {
  EXPECT_EQ(error("1 + rosw"), "column 5: unknown name 'rosw', did you mean 'rows'?");
}

TEST_F(ExpressionTest, MalformedTextIsAnErrorWithItsColumn) {
  for (const char* text : {"",       " ",           "1 +",      "1 2",
                           "(1",     "1)",          "min(1)",   "ceil_div(1,2,3)",
                           "min 1",  "1 ? 2 : 3 :", "true ? 1", "0x10",
                           "1.5",    "1e3",         "a b",      "=",
                           "&",      "rows = 1",    "'x'",      "\"x\"",
                           "min(,)", "🙂"})
    EXPECT_THAT(error(text), testing::StartsWith("column ")) << text;
  EXPECT_THAT(error(std::string("1 +\0 1", 6)), testing::StartsWith("column "));
}

TEST_F(ExpressionTest, DepthAndLengthAreBounded) {
  const std::string deep(1000, '(');
  const std::string nots(1000, '!');
  const std::string minus(1000, '-');
  std::string conditions;
  std::string sum = "1";
  for (int i = 0; i < 500; ++i) {
    conditions += "true ? 1 : ";
    sum += "+1";
  }
  for (const std::string& text : {deep + "1" + std::string(1000, ')'), nots + "true",
                                  minus + "1", conditions + "1", sum})
    EXPECT_THAT(error(text),
                testing::AnyOf(HasSubstr("nested over"), HasSubstr("over")));
  EXPECT_THAT(error(std::string(5000, '1')), HasSubstr("over 4096 characters"));
}

TEST_F(ExpressionTest, WordsAreThoseANameCouldBe) {
  EXPECT_THAT(Expression::words_in("a+min(b_1, 2c)*a"),
              testing::ElementsAre("a", "min", "b_1", "a"));
}

}  // namespace
}  // namespace kiln::render
