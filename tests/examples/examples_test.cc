// Each example, run as it was built, on simulated devices and with the real NVRTC:
// first with an empty cache, then with what the first run left there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/simulated_driver.h"

namespace kiln {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class ExamplesTest : public testing::Test {
 protected:
  ExamplesTest() {
    kiln_.set("KILN_DRIVER", test::paths::kSimulatedDriver);
    kiln_.set("KILN_SIMULATED_DEVICES", "7.5,8.6");
  }

  /// What the example wrote to stdout; a test failure if it wrote anything else.
  std::string output_of(const std::string& example) {
    const auto finished = kiln_.run_in_shell("kiln-example-" + example);
    EXPECT_EQ(finished.status, 0) << finished.text();
    EXPECT_EQ(finished.err, "");
    return finished.out;
  }

  /// With `message` somewhere on stderr.
  void expect_failure(const std::string& example, const std::string& message) {
    const auto finished = kiln_.run_in_shell("kiln-example-" + example);
    EXPECT_EQ(finished.status, 1) << example << finished.text();
    EXPECT_THAT(finished.err, HasSubstr(message)) << example;
  }

  test::KilnProgram kiln_;
};

TEST_F(ExamplesTest, FirstUse) {
  const std::string kernel = "scaled_softmax_fwd:dtype=bf16,max_cols=any: ";
  EXPECT_THAT(output_of("first-use"),
              MatchesRegex(kernel + "compiled, and launched on device 0, a .* "
                                    "\\(7\\.5\\)\n"));
  EXPECT_THAT(output_of("first-use"), HasSubstr(kernel + "found in the cache, and"));
}

TEST_F(ExamplesTest, FromC) {
  EXPECT_THAT(output_of("from-c"),
              MatchesRegex("device 0, a .* \\(7\\.5\\): launched\n"
                           "device 1, a .* \\(8\\.6\\): launched\n"));
}

TEST_F(ExamplesTest, Operations) {
  kiln_.set("KILN_SIMULATED_DEVICES", "8.6");
  EXPECT_EQ(output_of("operations"), "softmax_forward is compiled, for device 0\n");
  EXPECT_EQ(output_of("operations"),
            "softmax_forward is found in the cache, for device 0\n");
}

TEST_F(ExamplesTest, Attention) {
  kiln_.set("KILN_SIMULATED_DEVICES", "8.6");
  kiln_.set("KILN_ATTENTION", "kiln");
  EXPECT_EQ(output_of("attention"),
            "Kiln's own kernel runs it, for KILN_ATTENTION=kiln, with a workspace of 0 "
            "bytes\n");
}

TEST_F(ExamplesTest, WhatIsMissingIsSaidOnStderr) {
  for (const char* example :
       {"attention", "first-use", "operations", "raw-source", "prefetch"}) {
    kiln_.set("KILN_SIMULATED_DEVICES", "");
    expect_failure(example, "the CUDA driver has no device here");
    kiln_.set("KILN_SIMULATED_DEVICES", "5.0");
    if (example != std::string_view("raw-source"))  // an NVRTC 12 builds that
      expect_failure(example, "device 0");
  }
  kiln_.set("KILN_DRIVER", "/no/such/libcuda.so.1");
  for (const char* example : {"attention", "first-use", "operations", "raw-source",
                              "prefetch", "two-devices"})
    expect_failure(example, "/no/such/libcuda.so.1");
}

TEST_F(ExamplesTest, RawSource) {
  const std::string launches =
      "launched row_sums<float>, which is _Z8row_sumsIfEvPfPKT_xx\n"
      "launched row_sums<__nv_bfloat16>, which is "
      "_Z8row_sumsI13__nv_bfloat16EvPfPKT_xx\n";
  EXPECT_EQ(output_of("raw-source"), "row_sums.cu: compiled\n" + launches);
  EXPECT_EQ(output_of("raw-source"), "row_sums.cu: found in the cache\n" + launches);
}

TEST_F(ExamplesTest, TwoDevices) {
  const std::string launches =
      "device 0, compute capability 7.5: launched kernel [0-9a-f]+\n"
      "device 1, compute capability 8.6: launched kernel [0-9a-f]+\n";
  const std::string first = output_of("two-devices");
  EXPECT_THAT(first,
              MatchesRegex(launches + "2 devices: 2 compiled, 0 found in the cache\n"));
  const std::string second = output_of("two-devices");
  EXPECT_THAT(second,
              MatchesRegex(launches + "2 devices: 0 compiled, 2 found in the cache\n"));
  // The same binaries.
  EXPECT_EQ(first.substr(0, first.find("2 devices")),
            second.substr(0, second.find("2 devices")));
}

TEST_F(ExamplesTest, Prefetch) {
  const std::string lines =
      "read 1000000 bytes of data meanwhile\n"
      "scaled_upper_triang_masked_softmax_fwd:.*: ready after .* ms\n"
      "scaled_upper_triang_masked_softmax_bwd:.*: ready after .* ms\n";
  EXPECT_THAT(output_of("prefetch"),
              MatchesRegex(lines + "2 compiled, 0 found in the cache\n"));
  EXPECT_THAT(output_of("prefetch"),
              MatchesRegex(lines + "0 compiled, 2 found in the cache\n"));
}

}  // namespace
}  // namespace kiln
