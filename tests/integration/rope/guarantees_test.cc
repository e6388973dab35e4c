// What existing fused rotary embeddings got wrong, each as a test of what holds here.
// The defect is told above its test. Those of sizes beyond 32 bits are in
// large_tensors_test.cc, the gradient of unequal halves in properties_test.cc.

#include <gtest/gtest.h>

#include "ops/plans.h"
#include "tests/integration/rope/kernels.h"
#include "tests/integration/rope/problem.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln::rope_test {
namespace {

class RopeGuarantees : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, RopeGuarantees,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);

// Guards against a fused path that drops the length of a key/value cache and turns
// every new token by position 0.
TEST_P(RopeGuarantees, ATokenAfterACacheTurnsByItsPosition) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    const Shape shape = sized({1, 20, 2, 32}, 1, 32);
    Problem<T, U> whole(form_of(GetParam()), shape, {});
    whole.run();
    for (const bool by_array : {false, true}) {
      const Shape one{.q_heads = 2, .k_heads = 1, .dim = 32, .rotary = 32};
      Problem<T, U> token(form_of(GetParam()), one,
                          by_array ? Setting{.starts = {13}} : Setting{.start = 13});
      std::copy_n(&whole.q.in_at(0, 13, 0, 0), 64, token.q.in.data());
      std::copy_n(&whole.k.in_at(0, 13, 0, 0), 32, token.k.in.data());
      token.run();
      EXPECT_TRUE(same_bits<T>(token.q.out.data(), &whole.q.out_at(0, 13, 0, 0), 64));
      EXPECT_TRUE(same_bits<T>(token.k.out.data(), &whole.k.out_at(0, 13, 0, 0), 32));
    }
  });
}

// Guards against one start for all of a rank's tokens where context parallelism gives
// it two pieces of the sequence, the r-th from the front and the r-th from the back, so
// that causal attention is the same work for each rank. That is two calls, each with
// its piece's start.
TEST_P(RopeGuarantees, ARanksTwoPiecesOfASequenceAreItsRows) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    constexpr I64 kRanks = 3;
    constexpr I64 kPiece = 5;
    const Shape shape = sized({2, 2 * kRanks * kPiece, 2, 40}, 1, 32);
    Problem<T, U> whole(form_of(GetParam()), shape, {});
    whole.run();
    Shape local_shape = shape;
    local_shape.sequence = 2 * kPiece;
    for (I64 rank = 0; rank < kRanks; ++rank) {
      Problem<T, U> local(form_of(GetParam()), local_shape,
                          {.positions = shape.sequence});
      for (const auto& [start, at] :
           {std::pair{rank * kPiece, I64{0}},
            std::pair{(2 * kRanks - 1 - rank) * kPiece, kPiece}}) {
        ops::RopeArguments args = local.arguments();
        args.sequence = kPiece;
        args.start = start;
        for (const auto& [from, to, tensor] :
             {std::tuple{&whole.q, &local.q, &args.q},
              std::tuple{&whole.k, &local.k, &args.k}}) {
          std::copy_n(&from->in_at(0, start, 0, 0), kPiece * from->in_strides.sequence,
                      &to->in_at(0, at, 0, 0));
          tensor->in = &to->in_at(0, at, 0, 0);
          tensor->out = to->out.data() + at * to->out_strides.sequence;
        }
        local.run(args);
        for (const auto& [want, got] :
             {std::pair{&whole.q, &local.q}, std::pair{&whole.k, &local.k}}) {
          const auto size =
              static_cast<std::size_t>(kPiece * got->out_strides.sequence);
          EXPECT_TRUE(same_bits<T>(&got->out_at(0, at, 0, 0),
                                   &want->out_at(0, start, 0, 0), size))
              << "rank " << rank << " start " << start;
        }
      }
    }
  });
}

// Guards against cosines, sines and products that are rounded to the elements' type.
TEST_P(RopeGuarantees, ProductsAreRoundedOnce) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    if (sizeof(T) == 4) {
      return;
    }
    const Shape shape{.sequence = 16, .q_heads = 2, .dim = 64, .rotary = 64};
    Problem<T, U> problem(form_of(GetParam()), shape, {.start = 1});
    EXPECT_LE(problem.run_and_check(), 0.5 + 0x1p-6);
    // The same in T throughout is off by more than that: the test can tell.
    const auto rounded = [](double x) {
      return T::from(static_cast<float>(x)).value();
    };
    double worst = 0;
    for (I64 s = 0; s < shape.sequence; ++s) {
      const Turns turns = problem.table.turns(1 + s, 64, problem.interleaved());
      const auto x = problem.q.in_head(0, s, 0, 64);
      const auto want =
          rotate(x, turns, problem.interleaved(), !GetParam().is_forward()).head;
      for (std::size_t d = 0; d < 64; ++d) {
        const auto [other, first] = partner_of(d, 64, problem.interleaved());
        const double own = rounded(x[d] * rounded(turns.cos[d]));
        const double others = rounded(x[other] * rounded(turns.sin[d]));
        const bool minus = first == GetParam().is_forward();
        worst = std::max(
            worst,
            test::in_ulp<T>(rounded(minus ? own - others : own + others), want[d], 0));
      }
    }
    EXPECT_GT(worst, 1.0);
  });
}

// Guards against a grid of the longest sequence times the batch, most of which has
// nothing to do where lengths differ, and which leaves tokens out where it is too
// small.
TEST_P(RopeGuarantees, AGridOfPackedSequencesCountsTheirTokensAlone) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    std::vector<I64> slots;
    for (const std::vector<std::int32_t>& begins :
         {std::vector<std::int32_t>{0, 50, 100, 150, 200},
          std::vector<std::int32_t>{0, 1, 2, 3, 200}}) {
      const Shape shape{.batch = 4,
                        .sequence = 200,
                        .q_heads = 2,
                        .dim = 16,
                        .rotary = 16,
                        .cu_seqlens = begins};
      Problem<T, U> problem(form_of(GetParam()), shape, {});
      const auto plan =
          ops::plan(ops::RopeForward{problem.arguments()}, kiln_cpu::planned_device());
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_EQ(plan->front().extents.at("tokens"), 200);
      slots.push_back(plan->front().extents.at("slots"));
      problem.run_and_check();
    }
    EXPECT_EQ(slots[0], slots[1]);
  });
}

// Guards against a layout that is guessed of strides: those of a dimension of size 1
// may be anything.
TEST_P(RopeGuarantees, StridesOfDimensionsOfSizeOneDoNotMatter) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    for (const Shape& shape :
         {Shape{.sequence = 6, .q_heads = 2, .k_heads = 1, .dim = 32, .rotary = 32},
          Shape{.batch = 6, .q_heads = 2, .k_heads = 1, .dim = 32, .rotary = 32},
          Shape{.q_heads = 1, .k_heads = 1, .dim = 32, .rotary = 32}}) {
      Problem<T, U> tidy(form_of(GetParam()), shape, {});
      tidy.run();
      for (const I64 any : {I64{0}, I64{1}, I64{-7}, I64{3}, I64{1} << 62}) {
        Problem<T, U> wild(form_of(GetParam()), shape, {});
        ops::RopeArguments args = wild.arguments();
        const auto disturb = [&](RopeStrides& strides, I64 heads) {
          strides.batch = shape.batch == 1 ? any : strides.batch;
          strides.sequence = shape.sequence == 1 ? any : strides.sequence;
          strides.head = heads == 1 ? any : strides.head;
        };
        for (auto* const tensor : {&args.q, &args.k}) {
          disturb(tensor->in_strides, tensor->heads);
          disturb(tensor->out_strides, tensor->heads);
        }
        wild.run(args);
        EXPECT_TRUE(same_bits(tidy.q.out, wild.q.out)) << shape << " stride " << any;
        EXPECT_TRUE(same_bits(tidy.k.out, wild.k.out)) << shape << " stride " << any;
      }
    }
  });
}

// Guards against a kernel that leaves what lies behind the rotated part to others: it
// is copied, bit for bit, whatever stands there.
TEST_P(RopeGuarantees, TheRestOfAHeadIsCopiedBitForBit) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    for (const I64 dim : {64, 61, 40}) {
      const Shape shape = sized({1, 3, 2, dim}, 1, 16);
      Problem<T, U> problem(form_of(GetParam()), shape, {});
      const std::array<float, 5> values{test::kNaN, -0.0F, test::kInfinity, T::kLowest,
                                        1e-40F};
      for (I64 s = 0; s < 3; ++s) {
        for (I64 d = 16; d < dim; ++d) {
          problem.q.in_at(0, s, 1, d) =
              T::from(values[static_cast<std::size_t>(d % 5)]);
        }
      }
      problem.run();
      for (I64 s = 0; s < 3; ++s) {
        EXPECT_TRUE(same_bits<T>(&problem.q.in_at(0, s, 1, 16),
                                 &problem.q.out_at(0, s, 1, 16),
                                 static_cast<std::size_t>(dim - 16)));
        for (I64 d = 0; d < 16; ++d)
          EXPECT_TRUE(std::isfinite(problem.q.out_at(0, s, 1, d).value()));
      }
    }
  });
}

// Guards against reads beyond the table for positions that only the device knows: they
// are NaN, which shows, and never those of another position.
TEST_P(RopeGuarantees, APositionOutsideTheTableIsNaNAndNothingIsReadThere) {
  with_types(form_of(GetParam()), []<typename T, typename U>() {
    for (const I64 dim : {32, 21}) {
      const Shape shape = sized({4, 3, 2, dim}, 0, 16);
      Problem<T, U> problem(form_of(GetParam()), shape,
                            {.positions = 10, .starts = {8, -2, 1 << 30, -(1 << 30)}});
      problem.run();
      for (I64 b = 0; b < 4; ++b) {
        for (I64 s = 0; s < 3; ++s) {
          const bool inside = (b == 0 && s < 2) || (b == 1 && s == 2);
          EXPECT_EQ(std::isnan(problem.q.out_at(b, s, 1, 5).value()), !inside);
          EXPECT_EQ(problem.q.out_at(b, s, 1, 20).value(),
                    problem.q.in_at(b, s, 1, 20).value());
        }
      }
    }
  });
}

}  // namespace
}  // namespace kiln::rope_test
