// What the tests of kernels would show: small kernels, each broken in one way, and
// their right twins.

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/kernels/compile_to_ptx.h"
#include "tests/support/kernels/guarded_memory.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/variant.h"
#include "tests/support/paths.h"

namespace kiln_cpu {
namespace {

constexpr long long kSize = 100;  // the last block is not full
constexpr unsigned kOrders = 6;

const kiln::render::TemplateCatalog& catalog() {
  static const auto* const all = new kiln::render::TemplateCatalog(
      catalog_with(kiln::test::paths::source("tests/integration/ptx/defects")));
  return *all;
}

/// What is said of a launch, and what it wrote; NaN elsewhere.
struct Outcome {
  std::string report;
  std::vector<float> out;
};

Outcome run(const std::string& name, bool is_broken, unsigned seed, Side exact) {
  const std::size_t bytes = kSize * sizeof(float);
  GuardedMemory out("out", bytes, {.exact = exact});
  GuardedMemory in("in", bytes, {.exact = exact});
  auto* to = reinterpret_cast<float*>(out.data());
  auto* from = reinterpret_cast<float*>(in.data());
  for (int i = 0; i < kSize; ++i)
    from[i] = 1.0F + 0.5F * static_cast<float>(i);  // sums are exact in any order
  std::fill_n(to, kSize, std::numeric_limits<float>::quiet_NaN());
  in.make_read_only();
  const auto spec = catalog().find(name).value();
  const kiln::Parameters parameters{{"broken", is_broken ? "true" : "false"}};
  long long size = kSize;
  const std::array<void*, 3> arguments{&to, &from, &size};
  constexpr std::array<std::size_t, 3> kSizes{8, 8, 8};
  kiln::ptx::Report report;
  const auto done = run_kernel(
      {.spec = *spec,
       .parameters = parameters,
       .entry = name,
       .geometry =
           spec->geometry(spec->canonical(parameters).value(), {{"size", kSize}}, name)
               .value(),
       .arguments = arguments,
       .sizes_bytes = kSizes},
      {.schedule = {.seed = seed, .splits_warps = seed != 0, .limit = 1'000'000},
       .checks = {.unset = true, .races = true}},
      report);
  std::string said = done ? "" : done.error().message;
  for (const auto& [note, count] : report.notes) said += note + "\n";
  return {said, {to, to + kSize}};
}

struct Defect {
  const char* kernel;
  const char* report;  // a part of what is said in at least one order
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.kernel;
}

class Defects : public testing::TestWithParam<Defect> {
 protected:
  void SetUp() override {
    if (!kiln::test::can_compile_ptx())
      GTEST_SKIP() << "no NVRTC on this machine";
  }
};

TEST_P(Defects, AreFoundInTheBrokenKernel) {
  std::vector<std::string> reports;
  for (unsigned seed = 0; seed < kOrders; ++seed)
    reports.push_back(run(GetParam().kernel, true, seed, Side::kEnd).report);
  EXPECT_THAT(reports, testing::Contains(testing::HasSubstr(GetParam().report)));
}

TEST_P(Defects, AreNotFoundInItsTwin) {
  const Outcome first = run(GetParam().kernel, false, 0, Side::kEnd);
  for (unsigned seed = 0; seed < kOrders; ++seed) {
    for (const Side exact : {Side::kBegin, Side::kEnd}) {
      const Outcome outcome = run(GetParam().kernel, false, seed, exact);
      EXPECT_EQ(outcome.report, "");
      EXPECT_EQ(outcome.out, first.out);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, Defects,
    testing::Values(Defect{"missing_barrier", "race in shared memory"},
                    Defect{"missing_second_barrier", "race in shared memory"},
                    Defect{"missing_warp_barrier", "race in shared memory"},
                    Defect{"unset_shared", "never written"},
                    Defect{"missing_copy_wait", "never written"},
                    Defect{"copy_wait_for_too_few", "never written"},
                    Defect{"stage_overwritten", "and the write of \"cp.async"},
                    Defect{"misaligned_matrix_row", "the address is misaligned"},
                    Defect{"barrier_in_unequal_loop", "deadlock"},
                    Defect{"barrier_between_lanes", "deadlock"},
                    Defect{"mask_of_absent_lanes", "deadlock"},
                    Defect{"mask_without_caller", "mask"},
                    Defect{"different_masks", "deadlock"},
                    Defect{"different_collectives", "deadlock"},
                    Defect{"lane_outside_mask", "reads a lane that takes no part"},
                    Defect{"write_past_end", "byte 400 of out"},
                    Defect{"read_past_end", "byte 400 of in"},
                    Defect{"read_before_begin", "byte -4 of in"},
                    Defect{"write_to_input", "invalid global write"},
                    Defect{"misaligned_load", "the address is misaligned"},
                    Defect{"dynamic_shared_overrun", "invalid shared read"},
                    Defect{"endless_loop", "and not ended"}),
    [](const auto& each) { return std::string(each.param.kernel); });

}  // namespace
}  // namespace kiln_cpu
