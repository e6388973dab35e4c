#include "binaries/verdict.h"

#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::binaries {
namespace {

ImageDescription image(std::string_view target, std::string_view toolkit = "13.0") {
  ImageDescription made;
  made.target = test::value_of(device::parse_target(target));
  made.toolkit = test::value_of(device::parse_cuda_version(toolkit));
  return made;
}

/// A library with a fat binary of each list.
DeviceCode library(const std::vector<std::vector<std::string_view>>& fat_binaries) {
  DeviceCode code;
  for (const auto& targets : fat_binaries) {
    std::vector<ImageDescription> images;
    for (const std::string_view target : targets) images.push_back(image(target));
    for (const ImageDescription& each : images) ++code.images[each].count;
    ++code.choices[images];
  }
  return code;
}

DeviceCode unlinked(std::string_view target) {
  DeviceCode code;
  ImageDescription made = image(target);
  made.is_relocatable = true;
  code.images[made] = {1, 1};
  return code;
}

TEST(Verdicts, FollowWhatTheDriverFinds) {
  struct Case {
    const char* what;
    DeviceCode code;
    ComputeCapability device;
    std::optional<device::CudaVersion> driver;
    Answer answer;
    const char* reason;
    const char* remedy;
  };
  const std::vector<Case> cases{
      {"the same major version",
       library({{"8.0", "compute_80"}}),
       {8, 6},
       {},
       Answer::kRuns,
       "it has sm_80",
       ""},
      {"the nearer of two",
       library({{"8.0", "8.6"}}),
       {8, 9},
       {},
       Answer::kRuns,
       "it has sm_86",
       ""},
      {"PTX alone",
       library({{"8.0", "compute_80"}}),
       {9, 0},
       {},
       Answer::kCompilesAtLoad,
       "compiles its PTX for compute_80 at the first load",
       "TORCH_CUDA_ARCH_LIST=\"9.0\", or nvcc -gencode arch=compute_90,code=sm_90"},
      {"suffix a elsewhere",
       library({{"9.0a"}}),
       {10, 0},
       {},
       Answer::kFails,
       "no kernel image is available for execution on the device (CUDA error 209): it "
       "has sm_90a",
       "install a build with sm_100 code"},
      {"suffix f in its family",
       library({{"10.0f"}}),
       {10, 3},
       {},
       Answer::kRuns,
       "sm_100f",
       ""},
      {"suffix f elsewhere",
       library({{"10.0f"}}),
       {12, 0},
       {},
       Answer::kFails,
       "209",
       "sm_120"},
      {"a driver older than the PTX",
       library({{"compute_80"}}),
       {9, 0},
       device::CudaVersion{12, 8},
       Answer::kFails,
       "unsupported toolchain (CUDA error 222): PTX built by CUDA 13.0 needs a driver",
       "install a newer driver"},
      {"SASS beside such PTX",
       library({{"9.0", "compute_90"}}),
       {9, 0},
       device::CudaVersion{13, 0},
       Answer::kRuns,
       "sm_90",
       ""},
      {"a driver of an older major version",
       library({{"9.0"}}),
       {9, 0},
       device::CudaVersion{12, 8},
       Answer::kFails,
       "(CUDA error 35)",
       "newer driver"},
      {"parts for other devices",
       library({{"8.0"}, {"9.0a"}, {"8.0", "9.0a"}}),
       {9, 0},
       {},
       Answer::kRuns,
       "sm_90a; of 3 fat binaries 1 have no code for it",
       ""},
      {"mostly PTX",
       library({{"9.0"}, {"compute_80"}, {"8.0", "compute_80"}}),
       {9, 0},
       {},
       Answer::kCompilesAtLoad,
       "; of 3 fat binaries 1 have SASS",
       "sm_90"},
      {"relocatable code",
       unlinked("8.0"),
       {8, 6},
       {},
       Answer::kFails,
       "no device loads it before it is linked",
       "nvcc -dlink -arch=sm_86"},
      {"LTO-IR",
       unlinked("lto_80"),
       {9, 0},
       {},
       Answer::kFails,
       "before it is linked",
       "-arch=sm_90"},
      {"LTO-IR for newer devices",
       unlinked("lto_90"),
       {8, 0},
       {},
       Answer::kFails,
       "it has lto_90",
       "sm_80"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    const Verdict verdict = judge(each.code, each.device, each.driver);
    EXPECT_EQ(word_of(verdict.answer), word_of(each.answer));
    EXPECT_THAT(verdict.reason, HasSubstr(each.reason));
    EXPECT_THAT(verdict.remedy, HasSubstr(each.remedy));
    EXPECT_EQ(verdict.remedy.empty(), verdict.answer == Answer::kRuns);
  }
}

}  // namespace
}  // namespace kiln::binaries
