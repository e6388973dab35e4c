// Kernels on a CPU are worth as much as the defects that they would show: small
// kernels, each broken in one way, and their right twins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/cpu_kernel/guarded_memory.h"
#include "tests/support/cpu_kernel/variant.h"
#include "tests/support/paths.h"

namespace kiln_cpu {

CpuKernels defect_kernels();

namespace {

constexpr long long kSize = 100;  // the last block is not full
constexpr std::array kThreeOrders{Order::kAscending, Order::kDescending,
                                  Order::kShuffled};

const Variant& variant(const std::string& name) {
  static const auto* const all = [] {
    const auto catalog = catalog_with(
        kiln::test::paths::source("tests/integration/cpu_kernels/defects"));
    auto* const list = new std::vector<Variant>();
    for (const CpuKernel& kernel : defect_kernels()) {
      list->emplace_back(kernel, catalog);
    }
    return list;
  }();
  return *std::find_if(all->begin(), all->end(),
                       [&](const Variant& v) { return v.name() == name; });
}

struct Outcome {
  std::string report;      // empty where the launch went well
  std::vector<float> out;  // what the kernel wrote, NaN elsewhere
};

Outcome run(const Variant& kernel, Order order, Side exact) {
  const std::size_t bytes = kSize * sizeof(float);
  GuardedMemory out("out", bytes, {.exact = exact});
  GuardedMemory in("in", bytes, {.exact = exact});
  auto* const to = reinterpret_cast<float*>(out.data());
  auto* const from = reinterpret_cast<float*>(in.data());
  for (int i = 0; i < kSize; ++i) {
    from[i] = 1.0F + 0.5F * static_cast<float>(i);  // sums are exact in any order
  }
  std::fill_n(to, kSize, std::numeric_limits<float>::quiet_NaN());
  in.make_read_only();
  LaunchOptions options{.order = order};
  options.longest_step = std::chrono::milliseconds(100);
  const auto done = kernel.launch(kernel.geometry({{"size", kSize}}).value(), options,
                                  to, static_cast<const float*>(from), kSize);
  return {done ? "" : done.error().message, {to, to + kSize}};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Defect {
  const char* kernel;
  /// What the report says; nothing for those that the results alone show.
  std::string report;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.kernel;
}

class Defects : public testing::TestWithParam<Defect> {};

TEST_P(Defects, AreFoundInTheBrokenKernel) {
  const Variant& kernel = variant(std::string(GetParam().kernel) + ":broken=true");
  std::vector<Outcome> outcomes;
  for (const Order order : kThreeOrders) {
    outcomes.push_back(run(kernel, order, Side::kEnd));
    if (!GetParam().report.empty()) {
      EXPECT_THAT(outcomes.back().report, testing::HasSubstr(GetParam().report));
    }
  }
  if (GetParam().report.empty()) {
    EXPECT_FALSE(same_bits(outcomes[0].out, outcomes[1].out) &&
                 same_bits(outcomes[0].out, outcomes[2].out));
  }
}

TEST_P(Defects, AreNotFoundInItsTwin) {
  const Variant& kernel = variant(std::string(GetParam().kernel) + ":broken=false");
  const Outcome first = run(kernel, Order::kAscending, Side::kEnd);
  for (const Order order : kThreeOrders) {
    for (const Side exact : {Side::kBegin, Side::kEnd}) {
      const Outcome outcome = run(kernel, order, exact);
      EXPECT_EQ(outcome.report, "");
      EXPECT_TRUE(same_bits(outcome.out, first.out));
      EXPECT_TRUE(std::all_of(outcome.out.begin(), outcome.out.end(),
                              [](float x) { return std::isfinite(x); }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, Defects,
    testing::Values(
        Defect{"missing_barrier", ""}, Defect{"missing_second_barrier", ""},
        Defect{"missing_warp_barrier", ""}, Defect{"unset_shared", ""},
        Defect{"missing_copy_wait", ""}, Defect{"copy_wait_for_too_few", ""},
        Defect{"stage_overwritten", ""},
        Defect{"misaligned_matrix_row", "misaligned access of 16 bytes, byte "},
        Defect{"divergent_barrier",
               "divergent barriers: thread 0 waits at the barrier "
               "of divergent_barrier.cu.mustache:"},
        Defect{"barrier_in_unequal_loop",
               "divergent barriers: thread 0 waits at the barrier of "
               "barrier_in_unequal_loop.cu.mustache:"},
        Defect{"barrier_between_lanes",
               "threads wait for each other for ever: thread 32 waits at "
               "shuffle with mask 0xffffffff, for thread 40 waits at the barrier of "
               "barrier_between_lanes.cu.mustache:"},
        Defect{"mask_of_absent_lanes",
               "thread 0 waits at shuffle_xor with mask "
               "0xffffffff, for thread 16 has ended"},
        Defect{"mask_without_caller", "is not in its own mask"},
        Defect{"different_masks", "waits at any with mask 0x"},
        Defect{"different_collectives", "waits at shuffle_"},
        Defect{"lane_outside_mask", "lane 15 reads lane 16, which is not in the mask"},
        Defect{"write_past_end",
               "block 1, thread 36 writes byte 400 of out, which has 400 bytes"},
        Defect{"read_past_end",
               "block 1, thread 35 reads byte 400 of in, which has 400 bytes"},
        Defect{"write_to_input", "writes byte"},
        Defect{"misaligned_load", "misaligned access of 16 bytes, byte"},
        Defect{"endless_loop", "thread 17: runs without end"}),
    [](const auto& defect) { return defect.param.kernel; });

/// What the kernels of product.cu.mustache put into out.
std::vector<float> product() {
  const auto in = [](int i) { return 1.0F + 0.5F * static_cast<float>(i % kSize); };
  std::vector<float> out;
  for (int i = 0; i < kSize; ++i) {
    const int lane = i % 32;
    const int row = lane / 4 + i / 32 % 2 * 8;
    const int column = 2 * (lane % 4) + i / 64;
    float sum = 0;  // exact
    for (int k = 0; k < 16; ++k) {
      sum += in(16 * row + k) * in(8 * k + column);
    }
    out.push_back(sum);
  }
  return out;
}

/// Those that give the same wrong values in every order.
class WrongProducts : public testing::TestWithParam<const char*> {};

TEST_P(WrongProducts, DifferFromTheRightOne) {
  const std::string name = GetParam();
  for (const Order order : kThreeOrders) {
    const Outcome broken = run(variant(name + ":broken=true"), order, Side::kEnd);
    EXPECT_EQ(broken.report, "");
    EXPECT_FALSE(same_bits(broken.out, product()));
    const Outcome right = run(variant(name + ":broken=false"), order, Side::kEnd);
    EXPECT_EQ(right.report, "");
    EXPECT_EQ(right.out, product());
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, WrongProducts,
                         testing::Values("wrong_swizzle", "exchanged_fragments",
                                         "wrong_transpose"),
                         [](const auto& kernel) { return std::string(kernel.param); });

TEST(Defects, OfAMatrixRowAreNotFoundInTheRightProduct) {
  EXPECT_EQ(
      run(variant("misaligned_matrix_row:broken=false"), Order::kAscending, Side::kEnd)
          .out,
      product());
}

struct Misplaced {
  const char* kernel;
  Order order;
  Side exact;
  const char* report;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
void PrintTo(const Misplaced& misplaced, std::ostream* out) {
  *out << misplaced.kernel;
}

class OutOfBounds : public testing::TestWithParam<Misplaced> {};

TEST_P(OutOfBounds, IsReportedAtTheSideThatIsExact) {
  const auto [name, order, exact, report] = GetParam();
  const Variant& kernel = variant(std::string(name) + ":broken=true");
  EXPECT_THAT(run(kernel, order, exact).report, testing::HasSubstr(report));
}

// Shared arrays end at their guard in ascending order and begin there in descending.
INSTANTIATE_TEST_SUITE_P(
    Kernels, OutOfBounds,
    testing::Values(
        Misplaced{"read_before_begin", Order::kAscending, Side::kBegin,
                  "block 0, thread 0 reads byte -4 of in, which has 400 bytes"},
        Misplaced{"write_past_end", Order::kAscending, Side::kBegin,
                  "some thread wrote byte 400 of out, which has 400 bytes"},
        Misplaced{"shared_overrun", Order::kAscending, Side::kEnd,
                  "block 0, thread 63 writes byte 256 of the shared array 'shifted', "
                  "which has 256 bytes"},
        Misplaced{"shared_overrun", Order::kDescending, Side::kEnd,
                  "some thread wrote byte 256 of the shared array 'shifted'"},
        Misplaced{"dynamic_shared_overrun", Order::kAscending, Side::kEnd,
                  "block 0, thread 63 reads byte 256 of the dynamic shared memory"}),
    [](const auto& misplaced) {
      return std::string(misplaced.param.kernel) + "_" +
             std::to_string(misplaced.index);
    });

TEST(Defects, OfSharedBoundsAreNotFoundInTheRightKernels) {
  for (const char* const name :
       {"shared_overrun:broken=false", "dynamic_shared_overrun:broken=false",
        "read_before_begin:broken=false"}) {
    for (const Order order : kThreeOrders) {
      EXPECT_EQ(run(variant(name), order, Side::kBegin).report, "") << name;
    }
  }
}

TEST(Defects, EndOneLaunchAndNotTheNext) {
  const Variant& broken = variant("mask_of_absent_lanes:broken=true");
  const Variant& faulty = variant("write_past_end:broken=true");
  const Variant& right = variant("write_past_end:broken=false");
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(run(broken, Order::kShuffled, Side::kEnd).report, "");
    EXPECT_NE(run(faulty, Order::kShuffled, Side::kEnd).report, "");
    EXPECT_EQ(run(right, Order::kShuffled, Side::kEnd).report, "");
  }
}

}  // namespace
}  // namespace kiln_cpu
