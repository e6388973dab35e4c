// What holds for a rotation whatever the numbers are. Most of it needs no bound: the
// same arithmetic in another arrangement gives the same bits.

#include <gtest/gtest.h>

#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"

namespace kiln::rope_test {
namespace {

class RopeProperties : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, RopeProperties,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);

template <typename T>
void copy(const Tensor<T>& from, Tensor<T>& to) {
  ASSERT_EQ(from.size(), to.size());
  std::copy_n(from.data(), from.size(), to.data());
}

TEST_P(RopeProperties, QueryAndKeyInOneLaunchAreWhatEachAloneIs) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    for (const I64 dim : {64, 27}) {
      Shape shape = sized({2, 5, 6, dim}, 2, 16);
      Problem<T, U> both(form_of(GetParam()), shape, {});
      both.run();
      shape.k_heads = 0;
      Problem<T, U> query(form_of(GetParam()), shape, {});
      copy(both.q.in, query.q.in);
      query.run();
      EXPECT_TRUE(same_bits(both.q.out, query.q.out));
      shape.q_heads = 2;
      Problem<T, U> key(form_of(GetParam()), shape, {});
      copy(both.k.in, key.q.in);
      key.run();
      EXPECT_TRUE(same_bits(both.k.out, key.q.out));
    }
  });
}

// Both ways that kiln/ops/rope.h describes: with any strides, and with one stride that
// leads through all tokens.
TEST_P(RopeProperties, ATableWithARowPerTokenTakesAnyPositionIds) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const std::vector<I64> ids{7, 0, 3, 3, 9, 1, 8, 2};
    Problem<T, U> with_starts(
        form_of(GetParam()),
        {.batch = 2, .sequence = 4, .q_heads = 2, .dim = 32, .rotary = 32},
        {.in = Layout::kBhsd, .positions = 8, .starts = {0, 4}});
    Problem<T, U> in_a_row(form_of(GetParam()),
                           {.sequence = 8, .q_heads = 2, .dim = 32, .rotary = 32},
                           {.positions = 8});
    for (I64 t = 0; t < 8; ++t) {
      for (I64 c = 0; c < 32; ++c) {
        const float angle = in_a_row.table.angle(ids[static_cast<std::size_t>(t)], c);
        with_starts.table.set(t, c, angle);
        in_a_row.table.set(t, c, angle);
        for (I64 h = 0; h < 2; ++h)
          in_a_row.q.in_at(0, t, h, c) = with_starts.q.in_at(t / 4, t % 4, h, c);
      }
    }
    with_starts.run();
    in_a_row.run();
    for (I64 t = 0; t < 8; ++t) {
      Problem<T, U> alone(form_of(GetParam()), {.q_heads = 2, .dim = 32, .rotary = 32},
                          {.positions = 10, .start = ids[static_cast<std::size_t>(t)]});
      std::copy_n(in_a_row.q.in.data() + t * 2 * 32, alone.q.in.size(),
                  alone.q.in.data());
      alone.run();
      for (I64 h = 0; h < 2; ++h) {
        for (I64 d = 0; d < 32; ++d) {
          const double wanted = alone.q.out_at(0, 0, h, d).value();
          EXPECT_EQ(with_starts.q.out_at(t / 4, t % 4, h, d).value(), wanted) << t;
          EXPECT_EQ(in_a_row.q.out_at(0, t, h, d).value(), wanted) << t;
        }
      }
    }
  });
}

TEST_P(RopeProperties, APackedSequenceIsWhatItIsAlone) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const Shape shape{.batch = 4,
                      .sequence = 21,
                      .q_heads = 3,
                      .k_heads = 1,
                      .dim = 32,
                      .rotary = 16,
                      .cu_seqlens = {0, 1, 1, 17, 21}};
    Problem<T, U> packed(form_of(GetParam()), shape, {});
    packed.run();
    for (std::size_t i = 0; i < 4; ++i) {
      const I64 first = shape.cu_seqlens[i];
      const I64 length = shape.cu_seqlens[i + 1] - first;
      Problem<T, U> alone(
          form_of(GetParam()),
          {.sequence = length, .q_heads = 3, .k_heads = 1, .dim = 32, .rotary = 16},
          {});
      std::copy_n(packed.q.in.data() + first * 3 * 32, alone.q.in.size(),
                  alone.q.in.data());
      alone.run();
      EXPECT_TRUE(same_bits<T>(packed.q.out.data() + first * 3 * 32, alone.q.out.data(),
                               alone.q.out.size()))
          << "sequence " << i;
    }
  });
}

TEST(RopeReference, ItsGradientIsTheOneOfFiniteDifferences) {
  const Turns turns{.cos = {0.5, -0.3, 0.9, 0.1, 0.7, -0.8},
                    .sin = {0.1, 0.4, -0.2, 0.8, -0.6, 0.3}};
  const std::vector<double> x{1.5, -2, 0.25, 3, -0.5, 1, 7, 8};
  const std::vector<double> g{-1, 0.5, 2, 0.75, -3, 0.1, 4, -5};
  for (const bool interleaved : {false, true}) {
    const auto exact = rotate(g, turns, interleaved, true).head;
    const auto measured = finite_differences(x, g, turns, interleaved);
    for (std::size_t d = 0; d < x.size(); ++d) EXPECT_NEAR(exact[d], measured[d], 1e-9);
  }
}

}  // namespace
}  // namespace kiln::rope_test
