// What must be the same to the last bit, whatever the kernel computes.

#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/integration/attention_kernel/check.h"

namespace kiln::attention_test {
namespace {

using test::Bf16;

Problem small_problem() {
  return problem_of(ops::DType::kBf16, {2, 4, 70, 64}, {2, 4, 90, 64},
                    {.mask = Mask::kCausalBottomRight});
}

/// `to` gets the numbers of `from`, wherever they lie; heads of `from` that key and
/// value do not have are those that share.
template <typename T>
void copy_inputs(const Call<T>& from, Call<T>& to) {
  const Problem& a = from.problem;
  const Problem& b = to.problem;
  const auto copy = [&](Tensor<T> Call<T>::*tensor, Strides Problem::*strides,
                        bool is_query, I64 dim_of_a, I64 dim) {
    to.each(
        b.*strides, is_query, dim, [&](std::size_t at, I64 batch, I64 h, I64 i, I64 d) {
          const I64 head = is_query ? h : h * a.kv_heads / b.kv_heads;
          const std::size_t source = from.at(a.*strides, batch, head, i, d, is_query);
          (to.*tensor)[at] = d < dim_of_a ? (from.*tensor)[source] : T::from(0.0F);
        });
  };
  copy(&Call<T>::q, &Problem::q, true, a.dqk, b.dqk);
  copy(&Call<T>::k, &Problem::k, false, a.dqk, b.dqk);
  copy(&Call<T>::v, &Problem::v, false, a.dv, b.dv);
  copy(&Call<T>::grad_o, &Problem::o, true, a.dv, b.dv);
}

/// Element by element, wherever they lie.
template <typename T>
void expect_same_results(const Call<T>& a, const Call<T>& b) {
  const Problem& p = a.problem;
  const auto same = [&](const char* name, Tensor<T> Call<T>::*tensor,
                        Strides Problem::*strides, bool is_query, I64 dim) {
    I64 different = 0;
    a.each(p.*strides, is_query, dim,
           [&](std::size_t at, I64 batch, I64 h, I64 i, I64 d) {
             const auto other = b.at(b.problem.*strides, batch, h, i, d, is_query);
             different += (a.*tensor)[at].bits != (b.*tensor)[other].bits ? 1 : 0;
           });
    EXPECT_EQ(different, 0) << name;
  };
  same("o", &Call<T>::o, &Problem::o, true, p.dv);
  same("dq", &Call<T>::grad_q, &Problem::q, true, p.dqk);
  EXPECT_TRUE(same_bits(a.stats, b.stats)) << "stats";
  if (p.kv_heads == b.problem.kv_heads) {
    same("dk", &Call<T>::grad_k, &Problem::k, false, p.dqk);
    same("dv", &Call<T>::grad_v, &Problem::v, false, p.dv);
  }
}

/// Of both passes, from the same numbers.
void expect_same_results(const Problem& one, const Problem& other) {
  Call<Bf16> a(one);
  Call<Bf16> b(other);
  copy_inputs(a, b);
  a.run_both();
  b.run_both();
  expect_same_results(a, b);
}

TEST(AttentionProperties, EveryLayoutGivesTheSameBits) {
  for (const Layout layout : {Layout::kSbhd, Layout::kBhsd}) {
    Problem other = small_problem();
    other.layout = layout;
    expect_same_results(small_problem(), problem_of(other));
  }
}

TEST(AttentionProperties, PackedSequencesGiveTheSameBitsAsPaddedOnes) {
  Problem problem = small_problem();
  problem.mask = Mask::kPaddingCausalBottomRight;
  const Setting lengths{.lengths_q = {70, 31}, .lengths_kv = {50, 90}};
  Call<Bf16> padded(problem, lengths);
  problem.layout = Layout::kThd;
  Call<Bf16> packed(problem_of(problem), lengths);
  copy_inputs(padded, packed);
  padded.run(Pass::kForward);
  packed.run(Pass::kForward);
  EXPECT_TRUE(same_bits(padded.stats, packed.stats));
  for (I64 b = 0; b < problem.batch; ++b) {
    for (I64 h = 0; h < problem.heads; ++h)
      EXPECT_EQ(packed.head(packed.o, packed.problem.o, b, h, true, problem.dv),
                padded.head(padded.o, padded.problem.o, b, h, true, problem.dv));
  }
}

/// Of heads in five dimensions in memory, in rows of `row` elements.
Strides in_five_dimensions(const ops::GroupedHeads& grouped, I64 rows, I64 row) {
  const auto heads = ops::flattened(grouped);
  EXPECT_TRUE(heads);
  EXPECT_EQ(heads->count, grouped.groups * grouped.heads);
  return {.batch = rows * row,
          .head = heads->stride,
          .sequence = row,
          .dim = 1,
          .group = heads->group_stride};
}

TEST(AttentionProperties, TheFiveDimensionalFormGivesTheSameBits) {
  Problem flat = small_problem();
  flat.kv_heads = 2;
  flat = problem_of(flat);
  const I64 dim = flat.dqk;
  constexpr I64 kGroups = 2;
  constexpr I64 kHeads = 2;  // of a group
  struct Memory {
    const char* name;
    Strides q;
    Strides o;
  };
  const auto of = [&](I64 group, I64 head, I64 row) {
    return in_five_dimensions({kGroups, kHeads, group, head}, flat.sq, row);
  };
  for (const Memory& memory : std::initializer_list<Memory>{
           {"one stride leads to every head of a wider tensor",
            of(kHeads * 2 * dim, 2 * dim, kGroups * kHeads * 2 * dim),
            of(kHeads * (dim + 8), dim + 8, kGroups * kHeads * (dim + 8))},
           {"a group's heads, its key and its value in one tensor; heads first",
            of((kHeads + 2) * dim, dim, kGroups * (kHeads + 2) * dim),
            of(dim, kGroups * dim, kGroups * kHeads * dim)}}) {
    SCOPED_TRACE(memory.name);
    Problem five = flat;
    five.q = memory.q;
    five.o = memory.o;
    // [batch, groups, skv, dim], expanded to the heads of a group by a stride of 0.
    const auto keys = ops::flattened({kGroups, kHeads, flat.skv * dim, 0});
    ASSERT_TRUE(keys);
    five.kv_heads = keys->count;
    five.k = five.v = {.batch = kGroups * flat.skv * dim,
                       .head = keys->stride,
                       .sequence = dim,
                       .dim = 1};
    ASSERT_NE(five, flat);
    expect_same_results(flat, five);
  }
}

TEST(AttentionProperties, GroupsThatLieApartAreRightForTheKernelsInFloatToo) {
  for (const auto& [dtype, dim] :
       {std::pair{ops::DType::kF32, I64{64}}, std::pair{ops::DType::kBf16, I64{50}}}) {
    Problem problem =
        problem_of(dtype, {2, 6, 19, dim}, {2, 2, 35, dim}, {.mask = Mask::kCausal});
    problem.q = in_five_dimensions({2, 3, 5 * dim, dim}, problem.sq, 10 * dim);
    problem.o = in_five_dimensions({2, 3, dim, 2 * dim}, problem.sq, 6 * dim);
    check_both(problem);
  }
}

TEST(AttentionProperties, ZerosBehindTheValuesChangeNothing) {
  Problem narrow = small_problem();
  narrow.heads = narrow.kv_heads = 1;
  narrow.dqk = 192;
  narrow.dv = 128;
  Problem wide = narrow;
  wide.dv = 192;
  expect_same_results(problem_of(narrow), problem_of(wide));
}

}  // namespace
}  // namespace kiln::attention_test
