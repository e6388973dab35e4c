// SUPPORT.md is what the rules say.

#include "tools/support_matrix/support_matrix.h"

#include "tests/support/paths.h"
#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"
#include "util/read_file.h"

namespace kiln::attention {
namespace {

TEST(SupportMatrix, IsTheCommittedOne) {
  const auto committed =
      read_text_file(test::paths::source("src/attention/SUPPORT.md"), 1U << 20U);
  ASSERT_TRUE(committed) << committed.error().message;
  EXPECT_TRUE(*committed == support_matrix(built_in_rules()))
      << "rules were changed; write src/attention/SUPPORT.md anew and commit it:\n"
         "  cmake --build --preset dev --target support-matrix";
}

TEST(SupportMatrix, FindsTheFirstVersionAndTheHoles) {
  const auto of = [](const Problem& problem, ComputeCapability arch) {
    return supported_ranges(built_in_rules(), problem, arch);
  };
  const SupportedRange rest{version("9.10.2")};
  EXPECT_THAT(of(base(), {7, 5}), IsEmpty());
  EXPECT_THAT(of(base(), {9, 0}),
              ElementsAre(SupportedRange{version("8.9.6"), version("9.10.0")}, rest));
  Problem window = with_lengths(base(), 2048, 2048);
  window.window_left = 64;
  EXPECT_THAT(of(window, {9, 0}),
              ElementsAre(SupportedRange{version("9.10.2"), version("9.14.0")},
                          SupportedRange{version("9.14.1")}));
  EXPECT_THAT(of(with_dims(base(Pass::kBackward), 192, 160), {9, 0}),
              ElementsAre(SupportedRange{version("9.5.0"), version("9.10.0")},
                          SupportedRange{version("9.10.2"), version("9.11.0")}));
}

}  // namespace
}  // namespace kiln::attention
