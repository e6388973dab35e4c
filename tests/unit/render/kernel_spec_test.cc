#include "render/kernel_spec.h"

#include <string>

#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::render {
namespace {

class KernelSpecTest : public testing::Test {
 protected:
  [[nodiscard]] std::string error(const Parameters& params) const {
    const auto canonical = kernel_->canonical(params);
    return canonical ? "" : canonical.error().message;
  }

  [[nodiscard]] std::string geometry_error(const LaunchArguments& arguments) const {
    const auto result =
        kernel_->geometry(*kernel_->canonical({{"dtype", "f16"}}), arguments);
    return result ? "" : result.error().message;
  }

  test::BuiltIn family_;
  std::shared_ptr<const KernelSpec> kernel_ = family_.kernel();
};

TEST_F(KernelSpecTest, DefaultsAreFilledInAndTextsAreCanonical) {
  const Parameters full{
      {"dtype", "bf16"}, {"in_place", "false"}, {"max_cols", "128"}, {"unroll", "4"}};
  EXPECT_EQ(
      kernel_->canonical({{"dtype", "bf16"}, {"max_cols", "0128"}, {"unroll", "04"}})
          ->values(),
      full);
  EXPECT_EQ(
      *kernel_->canonical(full),
      *kernel_->canonical({{"unroll", "4"}, {"max_cols", "128"}, {"dtype", "bf16"}}));
  EXPECT_EQ(kernel_->canonical({{"dtype", "f16"}})->values(),
            (Parameters{{"dtype", "f16"},
                        {"in_place", "false"},
                        {"max_cols", "any"},
                        {"unroll", "1"}}));
}

TEST_F(KernelSpecTest, AWrongParameterNamesItsValuesAndTheNearest) {
  EXPECT_EQ(error({}),
            "scale_fwd: parameter 'dtype' is required; allowed: f16, bf16, f32");
  EXPECT_EQ(
      error({{"dtype", "bf61"}}),
      "scale_fwd: parameter 'dtype' cannot be 'bf61'; allowed: f16, bf16, f32, did "
      "you mean 'bf16'?");
  EXPECT_THAT(error({{"dtyp", "bf16"}}),
              StartsWith("scale_fwd: no parameter 'dtyp', did you mean 'dtype'?; there "
                         "are: dtype, max_cols"));
  EXPECT_THAT(
      error({{"dtype", "f16"}, {"unroll", "3"}}),
      HasSubstr("cannot be '3'; allowed: 1 to 8, powers of two; the nearest is"));
  EXPECT_THAT(error({{"dtype", "f16"}, {"unroll", "100"}}), HasSubstr("nearest is 8"));
  for (const char* bad :
       {"", "x", "1.0", "0x1", " 1", "1 ", "+1", "99999999999999999999"})
    EXPECT_THAT(error({{"dtype", "f16"}, {"unroll", bad}}),
                HasSubstr("allowed: 1 to 8"))
        << bad;
  for (const char* bad : {"", "True", "1", "yes", "on"})
    EXPECT_THAT(error({{"dtype", "f16"}, {"in_place", bad}}),
                HasSubstr("allowed: false, true"))
        << bad;
  EXPECT_THAT(error({{"dtype", std::string("f16\0", 4)}}), HasSubstr("cannot be"));
  EXPECT_THAT(error({{"dtype", "F16"}}), HasSubstr("cannot be 'F16'"));
}

TEST_F(KernelSpecTest, ABrokenConstraintIsAnErrorWithItsMessage) {
  EXPECT_EQ(
      error({{"dtype", "f16"}, {"in_place", "true"}, {"unroll", "8"}}),
      "scale_fwd: in place only up to 4 elements a thread ('!in_place || unroll <= "
      "4' does not hold)");
}

TEST_F(KernelSpecTest, TheWholeSourceIsPreludeAndText) {
  const auto source =
      kernel_->render(*kernel_->canonical({{"dtype", "bf16"}, {"max_cols", "32"}}));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->text,
            R"(#line 1 "prelude.cuh"
// prelude
#line 1 "scale.cu.mustache"
extern "C" __global__ void scale_fwd(bf16* out) {
  // forward 3 4 false false

  int warp = 32;




}
)");
}

TEST_F(KernelSpecTest, OneTextServesSeveralKernels) {
  const auto backward = family_.kernel("scale_bwd");
  const auto source = backward->render(*backward->canonical({{"dtype", "f32"}}));
  EXPECT_THAT(source->text, HasSubstr("void scale_bwd(f32* out)"));
  EXPECT_THAT(source->text, HasSubstr("// backward 4 1 false true"));
}

TEST_F(KernelSpecTest, AllVariantsRenderDifferently) {
  std::set<std::string> texts;
  for (const CanonicalParameters& variant : kernel_->default_set())
    texts.insert(kernel_->render(variant)->text);
  EXPECT_EQ(texts.size(), kernel_->default_set().size());
}

TEST_F(KernelSpecTest, TheSetsAreProductsInWhichEqualVariantsCountOnce) {
  EXPECT_EQ(kernel_->default_set().size(), 7U);
  EXPECT_THAT(kernel_->quick_set(),
              ElementsAre(*kernel_->canonical({{"dtype", "bf16"}})));
  const auto backward = family_.kernel("scale_bwd");
  EXPECT_EQ(backward->default_set().size(), 3U);
  EXPECT_THAT(backward->quick_set(), ElementsAre(backward->default_set().front()));
  family_.toml =
      test::replaced(family_.toml, "{ dtype = \"bf16\", in_place = true }",
                     "{ dtype = \"bf16\" }, { dtype = \"*\", in_place = true, "
                     "unroll = [8, 4] }");
  EXPECT_EQ(family_.kernel()->default_set().size(),
            9U);  // 6 + 0 + 3: unroll 8 left out
}

TEST_F(KernelSpecTest, GeometryComesFromParametersAndArguments) {
  const auto params = *kernel_->canonical({{"dtype", "f16"}, {"max_cols", "32"}});
  const auto result = kernel_->geometry(params, {{"rows", 1001}, {"cols", 32}});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(*result, (Geometry{{251, 1, 1}, {128, 1, 1}, 132}));
}

TEST_F(KernelSpecTest, EachEntryPointHasItsGeometry) {
  const auto backward = family_.kernel("scale_bwd");
  const auto params = *backward->canonical({{"dtype", "f16"}});
  EXPECT_EQ(*backward->geometry(params, {{"rows", 9}}),
            (Geometry{{9, 2, 1}, {32, 4, 1}, 0}));
  EXPECT_EQ(*backward->geometry(params, {{"rows", 9}}, "scale_bwd_finalize"),
            (Geometry{{1, 1, 1}, {32, 4, 1}, 0}));
  const auto unknown = backward->geometry(params, {{"rows", 9}}, "scale_bwd_finalise");
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("did you mean 'scale_bwd_finalize'?"));
}

TEST_F(KernelSpecTest, WrongLaunchArgumentsAreErrors) {
  EXPECT_EQ(geometry_error({{"rows", 1}}), "");
  EXPECT_EQ(geometry_error({}), "scale_fwd: launch argument 'rows' is missing: rows");
  EXPECT_THAT(geometry_error({{"rows", 1}, {"colls", 1}}),
              HasSubstr("no launch argument 'colls', did you mean 'cols'?"));
  EXPECT_EQ(geometry_error({{"rows", -1}}),
            "scale_fwd: launch argument 'rows' is negative: -1");
  EXPECT_THAT(geometry_error({{"rows", 0}}),
              HasSubstr("grid.x is 0; CUDA allows 1 to"));
  EXPECT_EQ(geometry_error({{"rows", 2147483647}}), "");
  EXPECT_THAT(geometry_error({{"rows", 2147483648}}),
              HasSubstr("grid.x is 2147483648"));
}

TEST_F(KernelSpecTest, ABrokenRequireIsAnErrorBeforeAnyGeometry) {
  const auto params = *kernel_->canonical({{"dtype", "f16"}, {"max_cols", "64"}});
  EXPECT_TRUE(kernel_->geometry(params, {{"rows", 1}, {"cols", 64}}));
  EXPECT_THAT(kernel_->geometry(params, {{"rows", 1}, {"cols", 65}}).error().message,
              HasSubstr("the row is longer than max_cols"));
}

TEST_F(KernelSpecTest, ATargetLimitExcludesSomeVariants) {
  const auto f16 = *kernel_->canonical({{"dtype", "f16"}});
  const auto bf16 = *kernel_->canonical({{"dtype", "bf16"}});
  EXPECT_EQ(kernel_->excluded(f16, {7, 5}), std::nullopt);
  EXPECT_EQ(kernel_->excluded(bf16, {8, 0}), std::nullopt);
  EXPECT_EQ(
      kernel_->excluded(bf16, {7, 5}),
      "scale_fwd needs compute capability 8.0 or higher (bf16 arithmetic), not 7.5");
  EXPECT_EQ(kernel_->excluded(f16, {7, 0}),
            "scale_fwd needs compute capability 7.5 or higher, not 7.0");
  EXPECT_EQ(kernel_->minimum_for(bf16), (device::ComputeCapability{8, 0}));
  family_.toml = test::replaced(family_.toml, "minimum = \"7.5\"",
                                "minimum = \"7.5\"\nmaximum = \"9.0\"");
  EXPECT_EQ(family_.kernel()->excluded(f16, {9, 0}), std::nullopt);
  EXPECT_THAT(*family_.kernel()->excluded(f16, {10, 0}), HasSubstr("9.0 or lower"));
}

TEST_F(KernelSpecTest, EveryByteOfItsInputsIsInADigest) {
  const KernelDigests before = kernel_->digests();
  EXPECT_EQ(test::BuiltIn().kernel()->digests(), before);
  test::BuiltIn text;
  text.text += " ";
  EXPECT_NE(text.kernel()->digests().text, before.text);
  test::BuiltIn toml;
  toml.toml += "#";
  EXPECT_NE(toml.kernel()->digests().kernel_toml, before.kernel_toml);
  test::BuiltIn prelude;
  prelude.prelude += "\n";
  EXPECT_NE(prelude.kernel()->digests().prelude, before.prelude);
  EXPECT_NE(before.renderer, Digest());
}

}  // namespace
}  // namespace kiln::render
