#include "device/architecture.h"

#include "device/cuda_version.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

TEST(ParseArchitecture, ReadsEveryForm) {
  for (const char* text : {"9.0", "90", "sm_90", "compute_90"})
    EXPECT_EQ(parse_architecture(text), (Architecture{{9, 0}})) << text;
  for (const char* text : {"9.0a", "90a", "sm_90a", "compute_90a"})
    EXPECT_EQ(parse_architecture(text), (Architecture{{9, 0}, ArchSuffix::kA})) << text;
  for (const char* text : {"10.0f", "100f", "sm_100f"})
    EXPECT_EQ(parse_architecture(text), (Architecture{{10, 0}, ArchSuffix::kF}))
        << text;
  EXPECT_EQ(parse_architecture("12.1"), (Architecture{{12, 1}}));
  EXPECT_EQ(parse_architecture("121"), (Architecture{{12, 1}}));
}

TEST(ParseArchitecture, RefusesEverythingElseAndSaysWhatItAccepts) {
  for (const char* text : {"",           "9",     "a",     "9.",     ".0",
                           "9.0b",       "9.0A",  "9.0aa", "9.00",   "9.0.0",
                           "sm_",        "sm90",  "SM_90", "sm_9.0", "compute_9.0a",
                           "compute-90", "lto90", "090",   "09.0",   "0.0",
                           "1000",       "100.0", "-9.0",  "+90",    "9,0",
                           " 90",        "90 ",   "9 0",   "native", "hopper"}) {
    const auto architecture = parse_architecture(text);
    ASSERT_FALSE(architecture) << text;
    EXPECT_EQ(architecture.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(architecture.error().message, HasSubstr("write 9.0, 90, sm_90"));
  }
}

TEST(ParseArchitecture, ReadsWhatToStringPrints) {
  for (int major = 2; major <= 13; ++major) {
    for (int minor = 0; minor <= 9; ++minor) {
      for (const ArchSuffix suffix :
           {ArchSuffix::kNone, ArchSuffix::kA, ArchSuffix::kF}) {
        const Architecture architecture{{major, minor}, suffix};
        EXPECT_EQ(parse_architecture(to_string(architecture)), architecture);
        EXPECT_EQ(parse_architecture(to_string(Target{architecture})), architecture);
      }
    }
  }
}

TEST(Architecture, PrintsWithADotAndATargetAsNvrtcSpellsIt) {
  const Architecture architecture{{10, 3}, ArchSuffix::kF};
  EXPECT_EQ(to_string(architecture), "10.3f");
  EXPECT_EQ(to_string(architecture.capability), "10.3");
  EXPECT_EQ(to_string(Target{architecture}), "sm_103f");
  EXPECT_EQ(to_string(Target{architecture, ImageKind::kPtx}), "compute_103f");
}

TEST(ParseTarget, AVirtualArchitectureIsPtxAndEveryOtherFormACubin) {
  EXPECT_EQ(parse_target("compute_90"), (Target{{{9, 0}}, ImageKind::kPtx}));
  for (const char* text : {"9.0", "90", "sm_90"})
    EXPECT_EQ(parse_target(text), (Target{{{9, 0}}, ImageKind::kCubin})) << text;
  EXPECT_FALSE(parse_target("compute_9.0"));
  EXPECT_EQ(parse_target("lto_90a"),
            (Target{{{9, 0}, ArchSuffix::kA}, ImageKind::kLtoIr}));
  for (const char* text : {"9.0a", "compute_90", "10.0f", "compute_120a", "lto_90"})
    EXPECT_EQ(arch_name(parse_target(text).value()), text) << "it is read back";
}

TEST(ParseTargetList, KeepsTheOrderDropsDoublesAndMarksNative) {
  const auto list = parse_target_list("8.6, 7.5,sm_86,native,compute_86,9.0a").value();
  EXPECT_THAT(list.targets, ElementsAre(Target{{{8, 6}}}, Target{{{7, 5}}},
                                        Target{{{8, 6}}, ImageKind::kPtx},
                                        Target{{{9, 0}, ArchSuffix::kA}}));
  EXPECT_TRUE(list.native);
  EXPECT_FALSE(parse_target_list("7.5").value().native);
  EXPECT_TRUE(parse_target_list("native").value().targets.empty());
}

TEST(ParseTargetList, RefusesEmptyElementsAndNamesTheWrongOne) {
  for (const char* text : {"", ",", "7.5,", ",7.5", "7.5,,8.6", " "})
    EXPECT_FALSE(parse_target_list(text)) << text;
  EXPECT_THAT(parse_target_list("7.5,8.x").error().message, HasSubstr("'8.x'"));
}

TEST(CudaVersion, ReadsAndPrintsAndUnderstandsTheDriversForm) {
  EXPECT_EQ(parse_cuda_version("13.0"), (CudaVersion{13, 0}));
  EXPECT_EQ(to_string(CudaVersion{12, 9}), "12.9");
  EXPECT_EQ(cuda_version_of_driver(12080), (CudaVersion{12, 8}));
  EXPECT_EQ(cuda_version_of_driver(13000), (CudaVersion{13, 0}));
  for (const char* text : {"", "13", "13.", ".0", "13.x", "13.0.1", "-13.0", "13. 0"})
    EXPECT_FALSE(parse_cuda_version(text)) << text;
}

}  // namespace
}  // namespace kiln::device
