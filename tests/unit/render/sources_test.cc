// Kernels whose text is that of several files.

#include <string>
#include <vector>

#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::render {
namespace {

class Sources : public testing::Test {
 protected:
  Sources() {
    toml_ = test::replaced(toml_, "source = \"scale.cu.mustache\"",
                           "source = [\"problem.cu.mustache\", \"scale.cu.mustache\"]");
  }

  /// As a user's folder, so that all is checked.
  [[nodiscard]] Result<TemplateCatalog> folder(
      const std::vector<EmbeddedFile>& texts) const {
    std::filesystem::remove_all(dir_.path() / "scale");
    for (const EmbeddedFile& text : texts)
      test::write_text(dir_.path() / "scale" / text.name, text.text);
    return TemplateCatalog::open({"// prelude\n", {}}, std::vector{dir_.path()});
  }
  [[nodiscard]] Result<TemplateCatalog> folder() const { return folder(files()); }

  [[nodiscard]] std::vector<EmbeddedFile> files() const {
    return {{"scale", "kernel.toml", toml_},
            {"scale", "problem.cu.mustache", problem_},
            {"scale", "scale.cu.mustache", scale_}};
  }

  [[nodiscard]] std::string error() const {
    const auto catalog = folder();
    return catalog ? ""
                   : test::replaced(catalog.error().message,
                                    dir_.path().string() + "/scale/", "");
  }

  [[nodiscard]] Digest text_digest() const {
    return folder()->find("scale_fwd").value()->digests().text;
  }

  const test::TempDir dir_;
  std::string toml_{test::kScaleToml};
  std::string problem_ = "constexpr int kUnroll = <%unroll%>;\n";
  std::string scale_ =
      "<%#in_place%>\n// in place\n<%/in_place%>\nvoid <%kernel%>();\n";
};

TEST_F(Sources, FollowOneAnotherEachWithItsOwnLines) {
  for (const char* const end : {"\n", ""}) {
    problem_ = std::string("constexpr int kUnroll = <%unroll%>;") + end;
    const auto catalog = folder();
    ASSERT_TRUE(catalog) << catalog.error().message;
    const auto kernel = catalog->find("scale_fwd").value();
    EXPECT_EQ(kernel->render(*kernel->canonical({{"dtype", "f16"}}))->text,
              R"(#line 1 "prelude.cuh"
// prelude
#line 1 "problem.cu.mustache"
constexpr int kUnroll = 1;
#line 1 "scale.cu.mustache"



void scale_fwd();
)");
  }
}

TEST_F(Sources, RenderTheSameWhereTheyAreBuiltIn) {
  const auto all = files();
  const std::vector<EmbeddedKernel> kernels{{"scale_fwd", "scale"}};
  const auto built_in = TemplateCatalog::open({"// prelude\n", all, kernels});
  const auto ours = built_in->find("scale_fwd").value();
  const auto theirs = folder()->find("scale_fwd").value();
  EXPECT_EQ(ours->digests(), theirs->digests());
  ASSERT_FALSE(theirs->default_set().empty());
  for (const CanonicalParameters& params : theirs->default_set())
    EXPECT_EQ(ours->render(params)->text, theirs->render(params)->text);
}

TEST_F(Sources, OfOneInAListAreAsThatOne) {
  toml_ = test::replaced(toml_, "\"problem.cu.mustache\", ", "");
  const auto listed = folder()->find("scale_fwd").value();
  EXPECT_EQ(listed->digests().text, Digest::of(as_bytes(scale_)));
  toml_ = test::replaced(toml_, "[\"scale.cu.mustache\"]", "\"scale.cu.mustache\"");
  const auto alone = folder()->find("scale_fwd").value();
  EXPECT_EQ(alone->digests().text, listed->digests().text);
  const CanonicalParameters& params = alone->default_set().front();
  EXPECT_EQ(alone->render(params)->text, listed->render(params)->text);
}

TEST_F(Sources, AreReplacedWholeByAKernelsOwn) {
  toml_ = test::replaced(toml_, "name = \"scale_bwd\"",
                         "name = \"scale_bwd\"\nsource = [\"scale.cu.mustache\"]");
  const auto backward = folder()->find("scale_bwd").value();
  EXPECT_EQ(backward->digests().text, Digest::of(as_bytes(scale_)));
}

TEST_F(Sources, AreAllInTheDigestWithTheirNamesAndOrder) {
  const Digest before = text_digest();
  EXPECT_EQ(text_digest(), before);
  const std::string problem = problem_;
  const std::string scale = scale_;
  problem_ += "\n";
  EXPECT_NE(text_digest(), before);
  problem_ = problem;
  scale_ += "\n";
  EXPECT_NE(text_digest(), before);
  // What stands in both together stays the same.
  scale_ = "// moved\n" + scale;
  const Digest in_the_second = text_digest();
  scale_ = scale;
  problem_ += "// moved\n";
  EXPECT_NE(text_digest(), in_the_second);
  problem_ = scale_ = "// the same\n";
  const Digest in_order = text_digest();
  toml_ = test::replaced(toml_, "[\"problem.cu.mustache\", \"scale.cu.mustache\"]",
                         "[\"scale.cu.mustache\", \"problem.cu.mustache\"]");
  EXPECT_NE(text_digest(), in_order);
}

TEST_F(Sources, AreCheckedOneByOne) {
  scale_ += "<%dtpye%>\n";
  EXPECT_THAT(error(), EndsWith("scale.cu.mustache:5: unknown name 'dtpye' in a tag, "
                                "did you mean 'dtype'?"));
  scale_ = "\n<%/in_place%>\n";
  problem_ = "\n\n<%#in_place%>\n";
  EXPECT_THAT(error(), EndsWith("problem.cu.mustache:3: section 'in_place' is never "
                                "closed"));
  problem_.clear();
  EXPECT_THAT(error(),
              EndsWith("scale.cu.mustache:2: '<%/in_place%>' closes no section"));
}

TEST_F(Sources, ThatAreNotThereAreNamed) {
  auto without = files();
  without.erase(without.begin() + 1);
  EXPECT_THAT(folder(without), test::IsError(ErrorCode::kNotFound,
                                             HasSubstr("scale/problem.cu.mustache")));
  const std::vector<EmbeddedKernel> kernels{{"scale_fwd", "scale"}};
  EXPECT_EQ(
      TemplateCatalog::open({"", without, kernels})->find("scale_fwd").error().message,
      "scale/kernel.toml: no file 'problem.cu.mustache' there");
}

TEST_F(Sources, AskForAHeaderWhereAnyOfThemDoes) {
  EXPECT_FALSE(folder()->find("scale_fwd").value()->has_include());
  scale_ += "#include <a.h>\n";
  const auto kernel = folder()->find("scale_fwd").value();
  EXPECT_TRUE(kernel->has_include());
  EXPECT_EQ(kernel->text(), problem_ + "#line 1 \"scale.cu.mustache\"\n" + scale_);
}

}  // namespace
}  // namespace kiln::render
