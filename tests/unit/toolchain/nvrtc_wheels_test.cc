#include "toolchain/nvrtc_wheels.h"

#include <string>

#include "tests/support/paths.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln::device {
namespace {

std::string wheel(CudaVersion driver, const std::optional<BuildFor>& build_for = {}) {
  const NvrtcWheel* const found = wheel_for(driver, build_for);
  return found == nullptr ? "none" : to_string(found->version);
}

TEST(NvrtcWheels, AreThoseThatTheTestsUse) {
  const std::string wheels =
      read_text_file(test::paths::source("tools/wheels.txt"), 1U << 20U).value();
  for (const NvrtcWheel& each : nvrtc_wheels()) {
    EXPECT_THAT(wheels, HasSubstr("\n" + std::string(each.requirement) + " \\\n"));
    EXPECT_THAT(std::string(each.requirement),
                HasSubstr("==" + to_string(each.version) + "."));
  }
}

TEST(NvrtcWheels, TheNewestIsNamedWhoseOutputTheDriverTakes) {
  EXPECT_EQ(wheel({13, 0}), "13.0");
  EXPECT_EQ(wheel({13, 9}, Target{Architecture{{9, 0}}}), "13.0");
  EXPECT_EQ(wheel({12, 0}), "12.9");
  EXPECT_EQ(wheel({12, 4}, ComputeCapability{10, 0}), "12.9");
  EXPECT_EQ(wheel({11, 8}), "none");
}

TEST(NvrtcWheels, AnArchitectureThatItNoLongerBuildsForTakesAnOlderOne) {
  EXPECT_EQ(wheel({13, 0}, Target{Architecture{{7, 0}}}), "12.9");
  EXPECT_EQ(wheel({12, 4}, Target{Architecture{{11, 0}}}), "none");
}

TEST(NvrtcWheels, PtxNeedsADriverOfItsOwnVersion) {
  EXPECT_EQ(wheel({12, 9}, ComputeCapability{11, 0}), "12.9");
  EXPECT_EQ(wheel({12, 4}, ComputeCapability{11, 0}), "12.4");
  EXPECT_EQ(wheel({12, 3}, ComputeCapability{11, 0}), "none");
}

}  // namespace
}  // namespace kiln::device
