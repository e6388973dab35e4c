#include "request/selection.h"

#include <string>

#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::request {
namespace {

class SelectionTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const TemplateRequest& request : selection_.requests())
      out.push_back(format_template(request.kernel->name(), request.params.values()));
    return out;
  }

  [[nodiscard]] std::string error(std::string_view text) {
    const auto added = selection_.add_template(text);
    return added ? "" : added.error().message;
  }

  render::TemplateCatalog catalog_ = *test::BuiltIn().open();
  Selection selection_{catalog_};
};

TEST(TemplatePatternTest, TextIsReadAndWrittenBack) {
  for (const char* text : {"a", "a:p=1", "a:p=1,q=b_c"}) {
    const auto pattern = parse_template_pattern(text);
    ASSERT_TRUE(pattern) << pattern.error().message;
    EXPECT_EQ(format_template(pattern->name, pattern->params), text);
  }
  const auto pattern = parse_template_pattern(" a : q = x , p=1=2 ");
  EXPECT_EQ(format_template(pattern->name, pattern->params), "a:p=1=2,q=x");
  EXPECT_EQ(format_template(parse_template_pattern("a:")->name, {}), "a");
}

TEST(TemplatePatternTest, MalformedTextIsAnError) {
  for (const char* text : {"", ":", ":p=1", "a:p", "a:p=1,", "a:,p=1", "a:=1",
                           "a:p=1,p=2", "a:p=1,,q=2"}) {
    const auto pattern = parse_template_pattern(text);
    ASSERT_FALSE(pattern) << text;
    EXPECT_EQ(pattern.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(pattern.error().message, HasSubstr("write NAME or NAME:p=v,q=w"));
  }
}

TEST_F(SelectionTest, AllAndQuickAreTheDeclaredSets) {
  ASSERT_TRUE(selection_.add_quick());
  EXPECT_THAT(texts(),
              ElementsAre("scale_bwd:dtype=f16,in_place=false,max_cols=any,unroll=1",
                          "scale_fwd:dtype=bf16,in_place=false,max_cols=any,unroll=1"));
  ASSERT_TRUE(selection_.add_all());
  EXPECT_EQ(texts().size(), 10U);  // 3 + 7, the quick ones among them
  ASSERT_TRUE(selection_.add_all());
  EXPECT_EQ(texts().size(), 10U);
}

TEST_F(SelectionTest, ALeftOutParameterTakesEveryValueOfTheDefaultSet) {
  EXPECT_EQ(error("scale_fwd:max_cols=64,in_place=false"), "");
  EXPECT_THAT(texts(),
              ElementsAre("scale_fwd:dtype=f16,in_place=false,max_cols=64,unroll=1",
                          "scale_fwd:dtype=bf16,in_place=false,max_cols=64,unroll=1",
                          "scale_fwd:dtype=f32,in_place=false,max_cols=64,unroll=1"));
}

TEST_F(SelectionTest, EqualRequestsCountOnceHoweverTheyAreWritten) {
  const std::string one = "scale_fwd:dtype=f16,max_cols=32,unroll=2,in_place=false";
  EXPECT_EQ(error(one), "");
  EXPECT_EQ(error("scale_fwd:in_place=false,unroll=02,max_cols=032,dtype=f16"), "");
  EXPECT_EQ(texts().size(), 1U);
}

TEST_F(SelectionTest, AFamilyNamesAllItsKernels) {
  EXPECT_EQ(error("scale:dtype=f32"), "");
  Selection both(catalog_);
  EXPECT_TRUE(both.add_template("scale_bwd:dtype=f32"));
  EXPECT_TRUE(both.add_template("scale_fwd:dtype=f32"));
  EXPECT_EQ(selection_.requests().size(), both.requests().size());
}

TEST_F(SelectionTest, AnErrorAddsNothing) {
  EXPECT_THAT(error("scael_fwd"), HasSubstr("did you mean 'scale_fwd'?"));
  EXPECT_THAT(error("scale_fwd:dtype=f61"), HasSubstr("cannot be 'f61'"));
  EXPECT_THAT(error("scale:dytpe=f16"), HasSubstr("did you mean 'dtype'?"));
  EXPECT_THAT(error("scale_fwd:in_place=true,unroll=8"), HasSubstr("in place only"));
  EXPECT_THAT(texts(), IsEmpty());
}

TEST(OwnTemplates, BuildAtMost250KernelsAnArchitectureByDefault) {
  const auto catalog = render::TemplateCatalog::open(templates::embedded());
  ASSERT_TRUE(catalog) << catalog.error().message;
  Selection all(*catalog);
  ASSERT_TRUE(all.add_all());
  EXPECT_LE(all.requests().size(), 250U);
}

}  // namespace
}  // namespace kiln::request
