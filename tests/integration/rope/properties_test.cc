// What holds for a rotation whatever the numbers are. Most of it needs no bound: the
// same arithmetic in another arrangement gives the same bits.

#include <gtest/gtest.h>

#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"

namespace kiln::rope_test {
namespace {

class RopeProperties : public testing::TestWithParam<Variant> {};
class RopeGradients : public RopeProperties {};
class RopeStyles : public RopeProperties {};

INSTANTIATE_TEST_SUITE_P(Variants, RopeProperties,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);
INSTANTIATE_TEST_SUITE_P(Variants, RopeGradients,
                         testing::ValuesIn(kernels_where(&Variant::is_forward)),
                         kNameOfVariant);

/// Those half ones that are compiled interleaved too.
std::vector<Variant> variants_of_both_styles() {
  return kernels_where([](const Variant& each) {
    return each.param("style") == "half" &&
           variant_like(each, each.kernel(), "interleaved") != nullptr;
  });
}
INSTANTIATE_TEST_SUITE_P(Variants, RopeStyles,
                         testing::ValuesIn(variants_of_both_styles()), kNameOfVariant);

const Variant& backward_of(const Variant& forward) {
  return *variant_like(forward, "rope_bwd", forward.param("style"));
}

template <typename T>
void copy(const Tensor<T>& from, Tensor<T>& to) {
  ASSERT_EQ(from.size(), to.size());
  std::copy_n(from.data(), from.size(), to.data());
}

TEST_P(RopeGradients, BackwardUndoesForwardWhereAPairHasOneAngle) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const Shape shape = sized({2, 9, 3, 40}, 1, 32);
    Problem<T, U> forward(form_of(GetParam()), shape, {.paired = true});
    Problem<T, U> backward(form_of(backward_of(GetParam())), shape, {.paired = true});
    forward.run();
    copy(forward.q.out, backward.q.in);
    backward.run();
    // Two roundings to T; of a table of U cos^2 + sin^2 is not 1.
    const double relative =
        std::ldexp(2.0, -T::kDigits) + (GetParam().param("table") == "angles"
                                            ? 0x1p-22
                                            : std::ldexp(4.0, -U::kDigits));
    for (I64 i = 0; i < I64{2} * 9 * 3; ++i) {
      const auto head = static_cast<std::size_t>(i * shape.dim);
      for (std::size_t d = 0; d < 40; ++d) {
        const double x = forward.q.in[head + d].value();
        double both = std::fabs(x);
        if (d < 32) {
          const auto pair = partner_of(d, 32, forward.interleaved());
          both += std::fabs(forward.q.in[head + pair.at].value());
        }
        EXPECT_NEAR(backward.q.out[head + d].value(), x, relative * both) << head + d;
      }
    }
  });
}

TEST_P(RopeProperties, PairsKeepTheirNormWhereTheyHaveOneAngle) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const Shape shape{.sequence = 12, .q_heads = 2, .dim = 32, .rotary = 32};
    Problem<T, U> problem(form_of(GetParam()), shape, {.paired = true});
    problem.run();
    const double relative =
        std::ldexp(1.0, -T::kDigits) + (GetParam().param("table") == "angles"
                                            ? 0x1p-22
                                            : std::ldexp(2.0, -U::kDigits));
    for (std::size_t i = 0; i < problem.q.in.size(); ++i) {
      const auto pair = partner_of(i % 32, 32, problem.interleaved());
      const std::size_t other = i / 32 * 32 + pair.at;
      const auto norm = [&](const Tensor<T>& of) {
        return std::hypot(of[i].value(), of[other].value());
      };
      EXPECT_NEAR(norm(problem.q.out), norm(problem.q.in),
                  relative * norm(problem.q.in));
    }
  });
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

TEST_P(RopeStyles, InterleavedIsHalfAfterAPermutation) {
  const Variant& half = GetParam();
  const Variant& interleaved = *variant_like(half, half.kernel(), "interleaved");
  with_types(form_of(GetParam()), [&]<typename T, typename U>() {
    for (const I64 rotary : {32, 14}) {
      const Shape shape{.sequence = 7, .q_heads = 2, .dim = 40, .rotary = rotary};
      Problem<T, U> by_halves(form_of(half), shape, {.paired = true});
      Problem<T, U> by_neighbours(form_of(interleaved), shape, {.paired = true});
      const auto at = [&](std::size_t i) {  // the element of the same pair, same side
        const auto d = static_cast<I64>(i % 40);
        const I64 moved = d >= rotary ? d : d % 2 * (rotary / 2) + d / 2;
        return i / 40 * 40 + static_cast<std::size_t>(moved);
      };
      for (std::size_t i = 0; i < by_halves.q.in.size(); ++i)
        by_neighbours.q.in[i] = by_halves.q.in[at(i)];
      by_halves.run();
      by_neighbours.run();
      for (std::size_t i = 0; i < by_halves.q.in.size(); ++i)
        ASSERT_EQ(by_neighbours.q.out[i].value(), by_halves.q.out[at(i)].value()) << i;
    }
  });
}

TEST_P(RopeProperties, AStartIsAShiftOfTheTable) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const Shape shape = sized({2, 6, 2, 32}, 1, 32);
    Problem<T, U> started(form_of(GetParam()), shape, {.start = 24});
    started.run();
    Problem<T, U> shifted(form_of(GetParam()), shape, {.positions = 30});
    ops::RopeArguments args = shifted.arguments();
    const I64 by = 24 * shifted.table.stride;
    if (shifted.table.has_angles) {
      args.table.angles += by;
    } else {
      args.table.cos = shifted.table.cos.data() + by;
      args.table.sin = shifted.table.sin.data() + by;
    }
    args.table.positions = 6;
    shifted.run(args);
    EXPECT_TRUE(same_bits(started.q.out, shifted.q.out));
    EXPECT_TRUE(same_bits(started.k.out, shifted.k.out));
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

// With other angles for the two elements of a pair: a gradient that turned back by the
// element's own angle would be another one.
TEST_P(RopeGradients, FollowTheChangeOfTheLoss) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const Shape shape{.sequence = 6, .q_heads = 2, .dim = 24, .rotary = 16};
    Problem<T, U> backward(form_of(backward_of(GetParam())), shape, {.start = 3});
    backward.run();
    const double relative = std::ldexp(1.0, -T::kDigits) + 0x1p-22;
    for (I64 s = 0; s < shape.sequence; ++s) {
      const Turns turns =
          backward.table.turns(3 + s, shape.rotary, backward.interleaved());
      const auto g = backward.q.in_head(0, s, 1, shape.dim);
      const auto change = finite_differences(std::vector<double>(g.size(), 0.5), g,
                                             turns, backward.interleaved());
      const auto terms = rotate(g, turns, backward.interleaved(), true).magnitude;
      for (I64 d = 0; d < shape.dim; ++d) {
        const auto i = static_cast<std::size_t>(d);
        EXPECT_NEAR(backward.q.out_at(0, s, 1, d).value(), change[i],
                    relative * terms[i] + 1e-8)
            << "token " << s << " element " << d;
      }
    }
  });
}

}  // namespace
}  // namespace kiln::rope_test
