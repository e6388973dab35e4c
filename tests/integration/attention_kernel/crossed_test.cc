// Attention's kernels against double: type, head dimensions, mask and layout in every
// combination; of these, windows, grouped heads, biases, dropout and lengths every
// pair.

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention/kernel_choice.h"
#include "tests/integration/attention_kernel/check.h"
#include "tests/integration/attention_kernel/element.h"
#include "tests/support/is_error.h"
#include "tests/support/kernels/run_plan.h"
#include "tests/support/test.h"

namespace kiln::attention_test {
namespace {

// ---- The axes

enum Axis : std::uint8_t { kKernels, kMask, kLayout, kHeadCounts, kExtra, kReach };
constexpr std::size_t kCrossed = kLayout + 1;

using Two = std::pair<I64, I64>;

/// Type and head dimensions: what decides on a kernel first.
struct Kernels {
  Element element;
  Two dims;  // of query and key, and of value
};
std::vector<Kernels> every_kernels() {
  // The last are uneven, and none for tensor cores.
  constexpr std::array<Two, 6> kDims{
      {{64, 64}, {128, 128}, {192, 128}, {256, 256}, {72, 40}, {33, 33}}};
  std::vector<Kernels> all;
  for (const Element& element : kElements) {
    // Half of the time of these tests is NVRTC's. The kernels of f16 for 7.5 and
    // for 8.0 are one text: each device has every second head dimension of them.
    const bool is_f16 = element.dtype == ops::DType::kF16;
    for (std::size_t i = 0; i < kDims.size(); ++i) {
      if (!is_f16 || (i % 2 == 0) == (element.capability < ComputeCapability{8, 0}))
        all.push_back({element, kDims.at(i)});
    }
  }
  return all;
}
std::string test_name(const Kernels& kernels) {
  return test_name(kernels.element) + "_" + std::to_string(kernels.dims.first) + "_" +
         std::to_string(kernels.dims.second);
}
const std::vector<Kernels> kKernelsOf = every_kernels();

constexpr std::array<Mask, 6> kMaskOf{
    Mask::kNone,    Mask::kCausal,        Mask::kCausalBottomRight,
    Mask::kPadding, Mask::kPaddingCausal, Mask::kPaddingCausalBottomRight};
constexpr std::array<Layout, 4> kLayoutOf{Layout::kBshd, Layout::kSbhd, Layout::kBhsd,
                                          Layout::kThd};
/// Of query, and of key and value.
constexpr std::array<Two, 3> kHeadsOf{{{2, 2}, {4, 2}, {3, 1}}};

struct Extra {
  Bias bias;
  double dropout;
};
constexpr std::array<Extra, 6> kExtraOf{{{Bias::kNone, 0},
                                         {Bias::kPostScale, 0},
                                         {Bias::kAlibi, 0},
                                         {Bias::kNone, 0.25},
                                         {Bias::kPostScale, 0.25},
                                         {Bias::kAlibi, 0.25}}};

/// Together, since what is seen depends on both.
struct Reach {
  Two window;   // left and right
  Two lengths;  // of queries and keys, the longest; no tile is a divisor
};
std::vector<Reach> every_reach() {
  std::vector<Reach> all;
  for (const Two& window : std::initializer_list<Two>{{-1, -1}, {6, -1}, {11, 4}}) {
    for (const Two& lengths :
         std::initializer_list<Two>{{1, 1}, {1, 37}, {33, 33}, {19, 70}, {70, 21}})
      all.push_back({window, lengths});
  }
  return all;
}
const std::vector<Reach> kReachOf = every_reach();

/// Of each axis the number of a value.
using Row = std::array<std::size_t, 6>;

const Row& sizes() {
  static const Row all{kKernelsOf.size(), kMaskOf.size(),  kLayoutOf.size(),
                       kHeadsOf.size(),   kExtraOf.size(), kReachOf.size()};
  return all;
}

Problem problem_of_row(const Row& row) {
  const Kernels& kernels = kKernelsOf[row[kKernels]];
  const Reach& reach = kReachOf[row[kReach]];
  return problem_of(
      kernels.element.dtype,
      {2, kHeadsOf.at(row[kHeadCounts]).first, reach.lengths.first, kernels.dims.first},
      {2, kHeadsOf.at(row[kHeadCounts]).second, reach.lengths.second,
       kernels.dims.first},
      {.dv = kernels.dims.second,
       .layout = kLayoutOf.at(row[kLayout]),
       .mask = kMaskOf.at(row[kMask]),
       .window_left = reach.window.first,
       .window_right = reach.window.second,
       .bias_kind = kExtraOf.at(row[kExtra]).bias,
       .dropout = kExtraOf.at(row[kExtra]).dropout});
}

/// The second sequence is a shorter one; packed ones with padding end before the next
/// begins.
Setting setting_of_row(const Row& row) {
  Setting setting{.capability = kKernelsOf[row[kKernels]].element.capability};
  const auto sq = static_cast<std::int32_t>(kReachOf[row[kReach]].lengths.first);
  const auto skv = static_cast<std::int32_t>(kReachOf[row[kReach]].lengths.second);
  const bool is_padded = attention::is_padded(kMaskOf.at(row[kMask]));
  const bool is_packed = kLayoutOf.at(row[kLayout]) == Layout::kThd;
  if (is_padded || is_packed) {
    setting.lengths_q = {sq, sq / 2};
    setting.lengths_kv = {skv, skv - skv / 3};
  }
  if (is_padded && is_packed) {
    setting.tokens_q = {sq - sq / 5, sq / 3};
    setting.tokens_kv = {skv - skv / 4, skv / 2};
  }
  return setting;
}

// ---- The rows

/// Do the kernels of both passes run on the CPU? CMakeLists.txt lists them.
bool has_kernels(const Row& row) {
  static std::map<std::array<std::size_t, 3>, bool> known;
  const std::array key{row[kKernels], row[kExtra], row[kReach]};
  if (const auto found = known.find(key); found != known.end())
    return found->second;
  Problem problem = problem_of_row(row);
  const ComputeCapability capability = kKernelsOf[row[kKernels]].element.capability;
  const auto is_compiled = [](const Result<attention::KernelChoice>& choice) {
    return choice && kiln_cpu::find_variant({.kernel = choice->kernel,
                                             .parameters = choice->parameters,
                                             .extents = {},
                                             .arguments = {}},
                                            kiln_cpu::kernels_of_program()) != nullptr;
  };
  bool has = is_compiled(choose_kernel(problem, capability));
  problem.pass = Pass::kBackward;
  has = has && is_compiled(choose_kernel(problem, capability)) &&
        (problem.bias_kind != Bias::kPostScale ||
         is_compiled(choose_bias_kernel(problem, capability)));
  return known.emplace(key, has).first->second;
}

bool is_refused(const Row& row) {
  return attention::is_causal(kMaskOf.at(row[kMask])) &&
         kReachOf[row[kReach]].window.second > 0;
}

/// Calls use(axis, other axis) for each two axes.
template <typename Use>
void for_each_two(const Use& use) {
  for (std::size_t axis = 0; axis < sizes().size(); ++axis)
    for (std::size_t other = axis + 1; other < sizes().size(); ++other)
      use(axis, other);
}

/// Calls use(row) for all rows that begin as `row` does, from `axis` on.
template <typename Use>
void for_each_row(Row row, std::size_t axis, std::size_t end, const Use& use) {
  if (axis == end)
    return use(row);
  for (row[axis] = 0; row[axis] < sizes()[axis]; ++row[axis])
    for_each_row(row, axis + 1, end, use);
}

using Pair = std::array<std::size_t, 4>;  // axis, value, axis, value

/// A row of each combination of the first axes that has one, and rows for the pairs of
/// values that none of these has (all-pairs testing).
class Table {
 public:
  Table() {
    for_each_two([&](std::size_t axis, std::size_t other) {
      for (std::size_t i = 0; i < sizes()[axis]; ++i)
        for (std::size_t j = 0; j < sizes()[other]; ++j) uses_[{axis, i, other, j}] = 0;
    });
    for_each_row({}, 0, kCrossed, [&](const Row& combination) {
      add_best(combination, kCrossed, [](const Row& /*row*/) { return true; });
    });
    for (const auto& [pair, uses] : uses_)
      if (uses == 0)
        add_best({}, 0, [&pair = pair](const Row& row) {
          return row[pair[0]] == pair[1] && row[pair[2]] == pair[3];
        });
  }

  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  [[nodiscard]] const std::map<Pair, int>& uses() const { return uses_; }

 private:
  /// Adds, of the rows that begin as `row` does, the one with most pairs that are new,
  /// and then those used least.
  template <typename IsMeant>
  void add_best(const Row& row, std::size_t begin, const IsMeant& is_meant) {
    std::optional<Row> best;
    double most = 0;
    for_each_row(row, begin, sizes().size(), [&](const Row& each) {
      if (!is_meant(each))
        return;
      double worth = 0;
      for_each_pair(each, [&](int uses) { worth += uses == 0 ? 100 : 1.0 / uses; });
      if (worth > most && !is_refused(each) && has_kernels(each)) {
        best = each;
        most = worth;
      }
    });
    if (!best)
      return;
    rows_.push_back(*best);
    for_each_pair(*best, [](int& uses) { ++uses; });
  }
  template <typename Use>
  void for_each_pair(const Row& row, const Use& use) {
    for_each_two([&](std::size_t axis, std::size_t other) {
      use(uses_.at({axis, row[axis], other, row[other]}));
    });
  }

  std::vector<Row> rows_;
  std::map<Pair, int> uses_;
};

const Table& table() {
  static const Table made;
  return made;
}

TEST(AttentionTable, HasEveryTypeHeadDimensionMaskAndLayoutInEveryCombination) {
  std::set<std::array<std::size_t, 3>> crossed;
  for (const Row& row : table().rows())
    crossed.insert({row[kKernels], row[kMask], row[kLayout]});
  EXPECT_EQ(crossed.size(), kKernelsOf.size() * kMaskOf.size() * kLayoutOf.size());
}

TEST(AttentionTable, LacksNoPairWithoutAReason) {
  std::size_t refused = 0;
  for (const auto& [pair, uses] : table().uses()) {
    if (uses > 0)
      continue;
    const auto& [axis, value, other, other_value] = pair;
    Row row{};
    row[axis] = value;
    row[other] = other_value;
    const Problem problem = problem_of_row(row);
    SCOPED_TRACE(to_string(problem));
    if (axis == kMask && other == kReach) {
      EXPECT_THAT(attention::validate(problem),
                  test::IsError(ErrorCode::kInvalidArgument,
                                HasSubstr("lets nothing be seen to the right")));
      ++refused;
    } else {
      // Only where there are a bias and dropout is a kernel not compiled: each of them
      // alone is there for every type and head dimension.
      EXPECT_EQ(axis, kKernels);
      EXPECT_EQ(other, kExtra);
      EXPECT_TRUE(problem.bias_kind != Bias::kNone && problem.dropout > 0);
    }
  }
  EXPECT_EQ(refused, 4U * 5U);  // of causal masks, windows to the right of each length
}

TEST(AttentionTable, HasEveryBiasWithDropout) {
  for (std::size_t extra = 0; extra < kExtraOf.size(); ++extra)
    EXPECT_TRUE(std::ranges::any_of(table().rows(), [&](const Row& row) {
      return row[kExtra] == extra;
    })) << word_of(kExtraOf.at(extra).bias);
}

// ---- The proof

class AttentionCrossed : public testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(All, AttentionCrossed,
                         testing::Range(std::size_t{0}, kKernelsOf.size()),
                         [](const auto& one) {
                           return test_name(kKernelsOf[one.param]);
                         });

TEST_P(AttentionCrossed, IsRightForEveryMaskAndLayout) {
  std::size_t count = 0;
  for (const Row& row : table().rows()) {
    if (row[kKernels] != GetParam())
      continue;
    Setting setting = setting_of_row(row);
    if (count % 6 == 0)  // to look for races takes as long again
      setting.order = Order::kDescending;
    check_both(problem_of_row(row), setting);
    ++count;
  }
  EXPECT_GT(count, 0U);
}

}  // namespace
}  // namespace kiln::attention_test
