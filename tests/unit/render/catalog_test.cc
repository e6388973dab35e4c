#include "render/catalog.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "render/embedded_templates.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::render {
namespace {

constexpr std::string_view kUserToml = R"(schema = 1
source = "mine.cu.mustache"
[targets]
minimum = "8.0"
[launch]
arguments.n = "elements"
grid = ["n"]
block = [1]
[[kernel]]
name = "scale_fwd"
summary = "mine"
default_set = [{}]
)";

class CatalogTest : public testing::Test {
 protected:
  void write_user_family(std::string_view family, std::string_view toml = kUserToml) {
    test::write_text(dir_.path() / family / "kernel.toml", toml);
    test::write_text(dir_.path() / family / "mine.cu.mustache", "// mine\n");
  }

  test::TempDir dir_;
  test::BuiltIn built_in_;
};

TEST_F(CatalogTest, KernelsAreSortedAndFoundByName) {
  const auto catalog = built_in_.open();
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_THAT(catalog->names(), ElementsAre("scale_bwd", "scale_fwd"));
  EXPECT_EQ((*catalog->kernels())[1]->name(), "scale_fwd");
  EXPECT_EQ((*catalog->find("scale_fwd"))->summary(), "y = scale * x");
  EXPECT_EQ(catalog->family("scale")->size(), 2U);
  EXPECT_TRUE(catalog->family("none")->empty());
  EXPECT_THAT(catalog->family_names(), ElementsAre("scale"));
}

TEST_F(CatalogTest, AnUnknownNameIsNotFoundWithTheNearest) {
  EXPECT_THAT(built_in_.open()->find("scale_fdw"),
              test::IsError(ErrorCode::kNotFound,
                            "no template 'scale_fdw', did you mean 'scale_fwd'?"));
  EXPECT_EQ(built_in_.open()->find("softmax").error().message,
            "no template 'softmax'; there are: scale_bwd, scale_fwd");
}

TEST_F(CatalogTest, AnEmptyCatalogIsNoError) {
  const auto catalog = TemplateCatalog::open({.prelude = ""});
  ASSERT_TRUE(catalog);
  EXPECT_TRUE(catalog->kernels()->empty());
  EXPECT_FALSE(catalog->find(""));
}

TEST_F(CatalogTest, WhatIsBuiltInIsReadWhenItIsAskedFor) {
  const std::vector<EmbeddedFile> files{
      {"broken", "kernel.toml", "no TOML"},
      {"scale", "kernel.toml", built_in_.toml},
      {"scale", "scale.cu.mustache", built_in_.text},
  };
  const std::vector<EmbeddedKernel> kernels{
      {"broken_fwd", "broken"}, {"scale_fwd", "scale"}, {"scale_gone", "scale"}};
  const auto catalog = TemplateCatalog::open({"", files, kernels});
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_THAT(catalog->names_in("scale"), ElementsAre("scale_fwd", "scale_gone"));
  const auto kernel = catalog->find("scale_fwd");
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(*kernel, *catalog->find("scale_fwd")) << "the same object each time";
  EXPECT_EQ(catalog->find("scale_gone").error().message,
            "scale/kernel.toml: no kernel 'scale_gone' there");
  EXPECT_THAT(catalog->find("broken_fwd").error().message,
              testing::StartsWith("broken/kernel.toml:1: "));
  EXPECT_FALSE(catalog->kernels());
}

TEST_F(CatalogTest, ThreadsThatAskForOneKernelGetTheSameObject) {
  const auto catalog = TemplateCatalog::open(templates::embedded());
  ASSERT_TRUE(catalog) << catalog.error().message;
  const std::string name = catalog->names().front();
  std::vector<std::shared_ptr<const KernelSpec>> found(8);
  test::in_threads(found.size(), [&](std::size_t i) {
    found[i] = catalog->find(name).value_or(nullptr);
  });
  ASSERT_NE(found.front(), nullptr);
  EXPECT_THAT(found, testing::Each(found.front()));
}

TEST_F(CatalogTest, AFolderReplacesTheWholeKernelOfAnEqualName) {
  write_user_family("mine");
  const auto catalog = built_in_.open({dir_.path()});
  ASSERT_TRUE(catalog) << catalog.error().message;
  const auto kernel = *catalog->find("scale_fwd");
  EXPECT_EQ(kernel->family(), "mine");
  EXPECT_EQ(kernel->folder(), dir_.path() / "mine");
  EXPECT_TRUE(kernel->parameters().empty());
  EXPECT_THAT(kernel->render(kernel->default_set().front())->text,
              testing::EndsWith("// mine\n"));
  EXPECT_EQ((*catalog->find("scale_bwd"))->family(), "scale");
  EXPECT_EQ(catalog->names().size(), 2U);
}

TEST_F(CatalogTest, TheFirstFolderWins) {
  write_user_family("a/one");
  write_user_family("b/two");
  const auto catalog = built_in_.open({dir_.path() / "b", dir_.path() / "a"});
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_EQ((*catalog->find("scale_fwd"))->family(), "two");
}

TEST_F(CatalogTest, AFolderMayBeAFamilyItself) {
  write_user_family("mine");
  const auto catalog = built_in_.open({dir_.path() / "mine/"});
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_EQ((*catalog->find("scale_fwd"))->family(), "mine");
}

TEST_F(CatalogTest, TwoKernelsOfOneNameInAFolderAreAnError) {
  write_user_family("one");
  write_user_family("two");
  const auto catalog = built_in_.open({dir_.path()});
  ASSERT_FALSE(catalog);
  EXPECT_THAT(catalog.error().message,
              HasSubstr("kernel 'scale_fwd' is declared in family 'one' too"));
  test::write_text(
      dir_.path() / "alone/three/kernel.toml",
      test::replaced(built_in_.toml, "name = \"scale_bwd\"", "name = \"scale_fwd\""));
  test::write_text(dir_.path() / "alone/three/scale.cu.mustache", built_in_.text);
  EXPECT_THAT(built_in_.open({dir_.path() / "alone"}).error().message,
              HasSubstr("kernel 'scale_fwd' is declared in family 'three' too"));
}

TEST_F(CatalogTest, ThePreludeCannotBeReplaced) {
  write_user_family("mine");
  test::write_text(dir_.path() / "prelude.cuh", "// other\n");
  const auto catalog = built_in_.open({dir_.path()});
  const auto kernel = *catalog->find("scale_fwd");
  EXPECT_THAT(kernel->render(kernel->default_set().front())->text,
              HasSubstr("// prelude\n"));
}

TEST_F(CatalogTest, ThePreludeIsPlainText) {
  built_in_.prelude = "a\n<%dtype%>\n";
  EXPECT_THAT(built_in_.error(), HasSubstr("prelude.cuh:2: the prelude is plain text"));
  built_in_.prelude = std::string("a\0", 2);
  EXPECT_THAT(built_in_.error(), HasSubstr("prelude.cuh:1:"));
}

TEST_F(CatalogTest, WhatIsNotThereIsNamed) {
  const auto no_folder = built_in_.open({dir_.path() / "gone"});
  EXPECT_THAT(no_folder, test::IsError(ErrorCode::kNotFound, HasSubstr("gone")));
  test::write_text(dir_.path() / "mine/kernel.toml", kUserToml);
  const auto no_text = built_in_.open({dir_.path()});
  EXPECT_THAT(no_text,
              test::IsError(ErrorCode::kNotFound, HasSubstr("mine/mine.cu.mustache")));
}

TEST_F(CatalogTest, ABadTextOfAUserNamesItsPathAndLine) {
  write_user_family("mine");
  test::write_text(dir_.path() / "mine/mine.cu.mustache", "a\nprintf(\"<%d\");\n");
  EXPECT_THAT(built_in_.open({dir_.path()}).error().message,
              HasSubstr((dir_.path() / "mine/mine.cu.mustache:2: ").string()));
}

TEST_F(CatalogTest, AFolderThatIsMadeOfOddThingsIsAnErrorNotAHang) {
  std::filesystem::create_directories(dir_.path() / "mine/kernel.toml");
  EXPECT_EQ(built_in_.open({dir_.path()}).error().code, ErrorCode::kInvalidArgument);
  std::filesystem::remove_all(dir_.path() / "mine");
  write_user_family("mine");
  std::filesystem::remove(dir_.path() / "mine/mine.cu.mustache");
  ASSERT_EQ(::mkfifo((dir_.path() / "mine/mine.cu.mustache").c_str(), 0600), 0);
  EXPECT_EQ(built_in_.open({dir_.path()}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(CatalogTest, AKernelOutlivesItsCatalogAndItsFolder) {
  write_user_family("mine");
  std::shared_ptr<const KernelSpec> kernel;
  {
    const auto catalog = built_in_.open({dir_.path()});
    kernel = *catalog->find("scale_fwd");
  }
  std::filesystem::remove_all(dir_.path() / "mine");
  EXPECT_THAT(kernel->render(kernel->default_set().front())->text,
              HasSubstr("// mine"));
}

TEST_F(CatalogTest, ManyThreadsMayRenderOneKernel) {
  const auto kernel = built_in_.kernel();
  const std::string expected = kernel->render(kernel->default_set().front())->text;
  test::in_threads(8, [&] {
    for (int k = 0; k < 20; ++k)
      EXPECT_EQ(kernel->render(kernel->default_set().front())->text, expected);
  });
}

}  // namespace
}  // namespace kiln::render
