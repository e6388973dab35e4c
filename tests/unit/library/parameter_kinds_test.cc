// Which parameters of a kernel are whole numbers and which floating-point.

#include "library/parameter_kinds.h"

#include <string>

#include "tests/support/test.h"

namespace kiln {
namespace {

constexpr auto kAny = ArgumentKind::kAny;
constexpr auto kInteger = ArgumentKind::kInteger;
constexpr auto kFloat = ArgumentKind::kFloat;

std::string no_ptx() {
  ADD_FAILURE() << "the name tells it, and no PTX is read";
  return "";
}

// The names are those that NVRTC 13.0 gives.
TEST(ParameterKinds, AreInAMangledName) {
  EXPECT_THAT(parameter_kinds("_Z5scalePffi", 3, no_ptx),
              ElementsAre(kInteger, kFloat, kInteger));
  EXPECT_THAT(parameter_kinds("_Z5scaleIfEvPT_S0_d", 3, no_ptx),
              ElementsAre(kInteger, kFloat, kFloat))
      << "scale<float>(T*, T, double)";
  EXPECT_THAT(parameter_kinds("_Z4nonev", 0, no_ptx), IsEmpty());
}

TEST(ParameterKinds, ThatANameDoesNotTellAreInThePtx) {
  const char* const ptx =
      ".entry _ZN2ns1kE1SbfNS_1EE(\n.param .align 4 .b8 a[4],\n.param .u8 b,\n"
      ".param .f32 c,\n.param .u32 d\n)";
  EXPECT_THAT(parameter_kinds("_ZN2ns1kE1SbfNS_1EE", 4, [&] { return ptx; }),
              ElementsAre(kAny, kInteger, kFloat, kInteger))
      << "ns::k(S, bool, float, ns::E)";
  EXPECT_THAT(parameter_kinds("_ZN2ns1kE1SbfNS_1EE", 4, [] { return ""; }),
              ElementsAre(kAny, kInteger, kFloat, kAny));
}

TEST(ParameterKinds, AreInTheSignatureWhateverBracketsAreInIt) {
  EXPECT_THAT(kinds_in_signature("void f<int (*)(float, int)>(S<int, float>, float*, "
                                 "int (*)(int, float), long)"),
              ElementsAre(kAny, kInteger, kAny, kInteger));
  EXPECT_THAT(kinds_in_signature("f()"), IsEmpty());
  EXPECT_THAT(kinds_in_signature("a variable"), IsEmpty());
  EXPECT_THAT(kinds_in_signature("broken)"), IsEmpty());
  EXPECT_THAT(kinds_in_signature(")"), IsEmpty());
}

TEST(ParameterKinds, OfAnExternCKernelAreInItsPtx) {
  const std::string ptx = R"(
.visible .entry fill_all(
	.param .f64 fill_all_param_0
)
.visible .entry fill(
	.param .u64 .ptr .align 1 fill_param_0,
	.param .f32 fill_param_1,
	.param .u32 fill_param_2,
	.param .align 4 .b8 fill_param_3[8],
	.param .align 2 .b8 fill_param_4[2]
)
{
)";
  EXPECT_THAT(parameter_kinds("fill", 5, [&] { return ptx; }),
              ElementsAre(kInteger, kFloat, kInteger, kAny, kAny));
  EXPECT_THAT(kinds_in_ptx(ptx, "fill_all"), ElementsAre(kFloat));
  EXPECT_THAT(kinds_in_ptx(ptx, "other"), IsEmpty());
  EXPECT_THAT(kinds_in_ptx(".entry fill(\n.param", "fill"), ElementsAre(kAny));
}

TEST(ParameterKinds, AreUnknownWhereTheirNumberIsAnother) {
  for (const char* const name : {"_Z5scalePffi", "fill"})
    EXPECT_THAT(parameter_kinds(name, 2, [] { return std::string(); }),
                ElementsAre(kAny, kAny));
}

}  // namespace
}  // namespace kiln
