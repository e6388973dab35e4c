#include "device/compatibility.h"

#include <array>

#include "tests/support/test.h"

namespace kiln::device {
namespace {

Target target_of(std::string_view text) {
  const bool ptx = text.starts_with("compute_");
  return {parse_architecture(text).value(), ptx ? ImageKind::kPtx : ImageKind::kCubin};
}

struct Row {
  const char* target;
  const char* runs_on;  // one place a device of kDevices
};

constexpr std::array kDevices{"7.0",  "7.2",  "7.5",  "8.0",  "8.6",
                              "8.7",  "8.8",  "8.9",  "9.0",  "10.0",
                              "10.1", "10.3", "11.0", "12.0", "12.1"};

// Written by hand from the documents, not from the code.
constexpr std::array kMatrix{
    //                7  7  7 8 8 8 8 8 9 10     11 12
    //                .0 .2 .5 0 6 7 8 9 0 0 1 3 0 0 1
    Row{"sm_70", "x.x............"},        Row{"sm_72", ".x............."},
    Row{"sm_75", "..x............"},        Row{"sm_80", "...xx.xx......."},
    Row{"sm_86", "....x.xx......."},        Row{"sm_87", ".....x........."},
    Row{"sm_88", "......xx......."},        Row{"sm_89", ".......x......."},
    Row{"sm_90", "........x......"},        Row{"sm_90a", "........x......"},
    Row{"sm_100", ".........x.x..."},       Row{"sm_100a", ".........x....."},
    Row{"sm_100f", ".........x.x..."},      Row{"sm_101", "..........x...."},
    Row{"sm_101a", "..........x...."},      Row{"sm_101f", "..........x...."},
    Row{"sm_103", "...........x..."},       Row{"sm_103a", "...........x..."},
    Row{"sm_103f", "...........x..."},      Row{"sm_110", "............x.."},
    Row{"sm_110a", "............x.."},      Row{"sm_110f", "............x.."},
    Row{"sm_120", ".............xx"},       Row{"sm_120a", ".............x."},
    Row{"sm_120f", ".............xx"},      Row{"sm_121", "..............x"},
    Row{"sm_121a", "..............x"},      Row{"sm_121f", "..............x"},
    Row{"compute_70", "xxxxxxxxxxxxxxx"},   Row{"compute_75", "..xxxxxxxxxxxxx"},
    Row{"compute_80", "...xxxxxxxxxxxx"},   Row{"compute_86", "....xxxxxxxxxxx"},
    Row{"compute_87", ".....xxxxxxxxxx"},   Row{"compute_88", "......xxxxxxxxx"},
    Row{"compute_89", ".......xxxxxxxx"},   Row{"compute_90", "........xxxxxxx"},
    Row{"compute_90a", "........x......"},  Row{"compute_100", ".........xxxxxx"},
    Row{"compute_100a", ".........x....."}, Row{"compute_100f", ".........x.x..."},
    Row{"compute_103", "...........xxxx"},  Row{"compute_103f", "...........x..."},
    Row{"compute_110", "............xxx"},  Row{"compute_110f", "............x.."},
    Row{"compute_120", ".............xx"},  Row{"compute_120a", ".............x."},
    Row{"compute_120f", ".............xx"}, Row{"compute_121", "..............x"},
    Row{"compute_121f", "..............x"},
};

TEST(Compatibility, LtoIrRunsNowhereBeforeItIsLinked) {
  const Target lto{{{9, 0}}, ImageKind::kLtoIr};
  EXPECT_EQ(to_string(lto), "lto_90");
  EXPECT_FALSE(runs_on(lto, {9, 0}));
  EXPECT_THAT(why_not(lto, {9, 0}), HasSubstr("link it"));
}

TEST(RunsOn, AgreesWithTheMatrixForEveryTargetAndDevice) {
  for (const Row& row : kMatrix) {
    ASSERT_EQ(std::string_view(row.runs_on).size(), kDevices.size()) << row.target;
    for (std::size_t i = 0; i < kDevices.size(); ++i) {
      const auto device = parse_architecture(kDevices[i]).value().capability;
      EXPECT_EQ(runs_on(target_of(row.target), device), row.runs_on[i] == 'x')
          << row.target << " on " << kDevices[i];
    }
  }
}

TEST(RunsOn, OlderIntegratedPartsStandAloneToo) {
  for (const auto& [part, other] : {std::pair{"sm_52", ComputeCapability{5, 3}},
                                    std::pair{"sm_53", ComputeCapability{5, 5}},
                                    std::pair{"sm_61", ComputeCapability{6, 2}},
                                    std::pair{"sm_30", ComputeCapability{3, 2}},
                                    std::pair{"sm_32", ComputeCapability{3, 5}}})
    EXPECT_FALSE(runs_on(target_of(part), other)) << part;
  EXPECT_TRUE(runs_on(target_of("sm_53"), {5, 3}));
  EXPECT_TRUE(runs_on(target_of("sm_60"), {6, 1}));
}

TEST(RunsOn, AnUnknownDeviceIsInNoFamilyButTakesItsMajorsCubins) {
  EXPECT_TRUE(runs_on(target_of("sm_120"), {12, 4}));
  EXPECT_FALSE(runs_on(target_of("sm_120f"), {12, 4}));
  EXPECT_FALSE(runs_on(target_of("sm_120"), {13, 0}));
  EXPECT_TRUE(runs_on(target_of("compute_121"), {13, 0}));
}

TEST(AcceptedBy, ACubinNeedsTheMajorAndPtxTheWholeVersion) {
  const CudaVersion toolkit{12, 9};
  EXPECT_TRUE(accepted_by({12, 0}, ImageKind::kCubin, toolkit));
  EXPECT_TRUE(accepted_by({13, 0}, ImageKind::kCubin, toolkit));
  EXPECT_FALSE(accepted_by({11, 8}, ImageKind::kCubin, toolkit));
  EXPECT_FALSE(accepted_by({12, 8}, ImageKind::kPtx, toolkit));
  EXPECT_TRUE(accepted_by({12, 9}, ImageKind::kPtx, toolkit));
  EXPECT_TRUE(accepted_by({13, 0}, ImageKind::kPtx, toolkit));
  EXPECT_EQ(min_driver(ImageKind::kCubin, toolkit), (CudaVersion{12, 0}));
  EXPECT_EQ(min_driver(ImageKind::kPtx, toolkit), toolkit);
}

TEST(WhyNot, IsEmptyExactlyWhereItFits) {
  for (const Row& row : kMatrix) {
    for (std::size_t i = 0; i < kDevices.size(); ++i) {
      const auto device = parse_architecture(kDevices[i]).value().capability;
      EXPECT_EQ(why_not(target_of(row.target), device).empty(), row.runs_on[i] == 'x');
    }
  }
}

TEST(WhyNot, NamesTheTargetTheRuleAndTheDevice) {
  EXPECT_EQ(why_not(target_of("sm_90a"), {10, 0}),
            "sm_90a code runs on devices of exactly that compute capability, and this "
            "device is 10.0");
  EXPECT_THAT(why_not(target_of("sm_80"), {8, 7}), HasSubstr("integrated"));
  EXPECT_THAT(why_not(target_of("sm_75"), {8, 6}), HasSubstr("same major version"));
  EXPECT_THAT(why_not(target_of("compute_90"), {8, 0}), HasSubstr("or a later one"));
  EXPECT_EQ(why_not({12, 4}, ImageKind::kPtx, {13, 0}),
            "PTX built by CUDA 13.0 needs a driver for CUDA 13.0 or later, and this "
            "driver is for 12.4");
  EXPECT_EQ(why_not({13, 0}, ImageKind::kCubin, {13, 1}), "");
}

}  // namespace
}  // namespace kiln::device
