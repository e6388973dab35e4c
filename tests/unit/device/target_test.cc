#include "device/target.h"

#include "device/compatibility.h"
#include "device/known_architectures.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"

namespace kiln::device {
namespace {

NvrtcFacts nvrtc(CudaVersion version, std::initializer_list<int> sms) {
  NvrtcFacts facts{version, {}};
  for (const int sm : sms) facts.architectures.push_back({sm / 10, sm % 10});
  return facts;
}

NvrtcFacts nvrtc_13() {
  return nvrtc({13, 0}, {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121});
}
NvrtcFacts nvrtc_12_9() {
  return nvrtc({12, 9}, {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100,
                         101, 103, 120, 121});
}
NvrtcFacts nvrtc_12_4() {
  return nvrtc({12, 4}, {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90});
}

BuildFor device(int major, int minor) {
  return ComputeCapability{major, minor};
}
BuildFor arch(std::string_view text) {
  return parse_target(text).value();
}

using Declared = std::vector<Architecture>;

// "sm_90a", or the error's code.
std::string chosen(const BuildFor& build_for, const NvrtcFacts& facts,
                   const Declared& declared = {}) {
  const auto choice = choose_target(build_for, declared, facts);
  return choice ? to_string(*choice)
                : std::string(kiln::to_string(choice.error().code));
}

TEST(ChooseTarget, ADeviceThatNvrtcKnowsGetsExactlyItsArchitecture) {
  for (const ComputeCapability each : nvrtc_13().architectures)
    EXPECT_EQ(chosen(each, nvrtc_13()), to_string(Target{{each}}));
}

TEST(ChooseTarget, ADeviceNewerThanNvrtcGetsTheHighestCubinThatRunsOnIt) {
  EXPECT_EQ(chosen(device(8, 8), nvrtc_12_4()), "sm_86");
  EXPECT_EQ(chosen(device(12, 1), nvrtc({12, 8}, {75, 90, 100, 120})), "sm_120");
  EXPECT_EQ(chosen(device(12, 9), nvrtc_13()), "sm_121");
}

TEST(ChooseTarget, AndPtxWhereNoCubinRunsOnIt) {
  EXPECT_EQ(chosen(device(10, 0), nvrtc_12_4()), "compute_90");
  EXPECT_EQ(chosen(device(12, 0), nvrtc_12_4()), "compute_90");
  EXPECT_EQ(chosen(device(13, 0), nvrtc_13()), "compute_121");
  // Integrated: no minor fallback, neither to one nor from one.
  EXPECT_EQ(chosen(device(8, 7), nvrtc({11, 2}, {75, 80, 86})), "compute_86");
  EXPECT_EQ(chosen(device(11, 0), nvrtc_12_9()), "compute_103");
  EXPECT_EQ(chosen(device(11, 1), nvrtc_13()), "compute_110");
}

TEST(ChooseTarget, WhateverItGivesADeviceRunsOnThatDevice) {
  for (const NvrtcFacts& facts : {nvrtc_12_4(), nvrtc_12_9(), nvrtc_13()}) {
    for (int major = 5; major <= 14; ++major) {
      for (int minor = 0; minor <= 9; ++minor) {
        const ComputeCapability capability{major, minor};
        const Declared declared{{{9, 0}, ArchSuffix::kA},
                                {{10, 0}, ArchSuffix::kF},
                                {{12, 0}, ArchSuffix::kF}};
        for (const Declared& each : {Declared{}, declared}) {
          const auto choice = choose_target(capability, each, facts);
          if (!choice)
            continue;
          EXPECT_TRUE(runs_on(*choice, capability)) << to_string(capability);
        }
      }
    }
  }
}

TEST(ChooseTarget, ADeviceThatNvrtcNoLongerSupportsNamesTheNvrtcThatDoes) {
  const std::vector<std::pair<ComputeCapability, std::string>> table{
      {{7, 0}, "install NVRTC 12.0 to 12.9"},
      {{7, 2}, "install NVRTC 12.0 to 12.9"},
      {{6, 1}, "install NVRTC 12.0 to 12.9"},
      {{5, 0}, "install NVRTC 12.0 to 12.9"},
      {{3, 5}, "11.8 was the last NVRTC that did: too old for Kiln"},
      {{3, 7}, "11.8 was the last NVRTC that did: too old for Kiln"},
      {{10, 1}, "NVRTC 12.8 to 12.9"}};
  for (const auto& [capability, who] : table) {
    for (const BuildFor& each :
         {BuildFor(capability), BuildFor(Target{{capability}})}) {
      const auto choice = choose_target(each, {}, nvrtc_13());
      EXPECT_THAT(choice,
                  test::IsError(ErrorCode::kUnavailable,
                                testing::AllOf(HasSubstr("NVRTC 13.0 no longer builds"),
                                               HasSubstr(who))))
          << to_string(capability);
    }
  }
}

TEST(ChooseTarget, AnArchitectureAskedForIsBuiltExactlyOrNotAtAll) {
  EXPECT_EQ(chosen(arch("9.0a"), nvrtc_13()), "sm_90a");
  EXPECT_EQ(chosen(arch("10.3f"), nvrtc_13()), "sm_103f");
  EXPECT_EQ(chosen(arch("12.1"), nvrtc_12_4()), "unavailable");
  EXPECT_EQ(chosen(arch("9.0a"), nvrtc({11, 8}, {80, 90})), "unavailable");
  EXPECT_EQ(chosen(arch("10.0f"), nvrtc({12, 8}, {90, 100})), "unavailable");
  EXPECT_EQ(chosen(arch("10.0a"), nvrtc({12, 8}, {90, 100})), "sm_100a");
}

TEST(ChooseTarget, PtxAskedForIsThatOfExactlyThisArchitecture) {
  EXPECT_EQ(chosen(arch("compute_80"), nvrtc_13()), "compute_80");
  EXPECT_EQ(chosen(arch("compute_90a"), nvrtc_13()), "compute_90a");
  const Declared wants_a{{{9, 0}, ArchSuffix::kA}};
  EXPECT_EQ(chosen(arch("compute_90"), nvrtc_13(), wants_a), "compute_90")
      << "with a suffix it would run on no later device";
  EXPECT_EQ(chosen(arch("compute_70"), nvrtc_13()), "unavailable");
  EXPECT_EQ(chosen(arch("compute_81"), nvrtc_13()), "invalid_argument");
}

TEST(ChooseTarget, AnArchitectureThatNeverWasIsAnInvalidArgument) {
  for (const char* text : {"1.3", "4.0", "7.1", "8.1", "9.1", "13.0", "9.0f", "8.0a",
                           "7.5f", "12.2", "12.2a", "10.2f", "99.9"})
    EXPECT_EQ(chosen(arch(text), nvrtc_13()), "invalid_argument") << text;
  const auto choice = choose_target(arch("9.1"), {}, nvrtc_13());
  EXPECT_THAT(choice.error().message,
              HasSubstr("no NVRTC ever built for 9.1; known are"));
}

TEST(ChooseTarget, AnArchitectureNewerThanTheTableIsTakenFromNvrtcItself) {
  const NvrtcFacts future = nvrtc({15, 0}, {90, 100, 140});
  EXPECT_EQ(chosen(arch("14.0a"), future), "sm_140a");
  EXPECT_EQ(chosen(arch("14.0f"), future), "sm_140f");
  EXPECT_EQ(chosen(device(14, 1), future), "sm_140");
}

TEST(ChooseTarget, TheTemplatesSuffixIsGivenWhereItRuns) {
  const Declared declared{{{9, 0}, ArchSuffix::kA}, {{10, 0}, ArchSuffix::kF}};
  const std::vector<std::pair<ComputeCapability, std::string>> table{
      {{8, 9}, "sm_89"},    {{9, 0}, "sm_90a"},  {{10, 0}, "sm_100f"},
      {{10, 3}, "sm_103f"}, {{11, 0}, "sm_110"}, {{12, 0}, "sm_120"}};
  for (const auto& [capability, target] : table) {
    EXPECT_EQ(chosen(capability, nvrtc_13(), declared), target);
    EXPECT_EQ(chosen(Target{{capability}}, nvrtc_13(), declared), target);
  }
  EXPECT_EQ(chosen(arch("10.0a"), nvrtc_13(), declared), "sm_100a");
}

TEST(ChooseTarget, ExactBeatsFamilyInWhateverOrderTheyAreDeclared) {
  const Architecture exact{{10, 0}, ArchSuffix::kA};
  const Architecture family{{10, 0}, ArchSuffix::kF};
  for (const auto& declared : {Declared{exact, family}, Declared{family, exact}}) {
    EXPECT_EQ(chosen(device(10, 0), nvrtc_13(), declared), "sm_100a");
    EXPECT_EQ(chosen(device(10, 3), nvrtc_13(), declared), "sm_103f");
  }
}

TEST(ChooseTarget, ASuffixThatThisNvrtcLacksIsAnErrorNotADifferentKernel) {
  const Declared declared{{{9, 0}, ArchSuffix::kA}};
  EXPECT_THAT(choose_target(device(9, 0), declared, nvrtc({11, 8}, {80, 90})),
              test::IsError(ErrorCode::kUnavailable, HasSubstr("NVRTC 12.0 or later")));
}

TEST(KnownArchitectures, AscendAndEndAfterTheyBegin) {
  ComputeCapability last{};
  for (const KnownArchitecture& each : known_architectures()) {
    EXPECT_LT(last, each.capability);
    last = each.capability;
    EXPECT_LE(each.first, each.last.value_or(each.first));
    EXPECT_LE(each.first, each.first_a.value_or(each.first));
    EXPECT_EQ(each.first_f.has_value(), each.capability.major >= 10);
  }
}

}  // namespace
}  // namespace kiln::device
