// What existing norms get wrong, each as a test of what holds here. The defect is told
// above its test. Registers are looked at in template_spills_test.cc, sizes beyond 32
// bits in large_tensors_test.cc, aliases in the operations' own tests.

#include "tests/integration/norm/problem.h"

namespace kiln::norm_test {
namespace {

class NormGuarantees : public testing::TestWithParam<Configuration> {
 protected:
  template <typename Function>
  static void with_problem(const Setting& setting, Function function) {
    SCOPED_TRACE(testing::Message() << setting);
    with_types(GetParam(), [&]<typename T, typename W>() {
      Problem<T, W> problem(GetParam(), setting);
      function(problem);
    });
  }
  static void check(const Setting& setting) {
    with_problem(setting, [](auto& problem) {
      EXPECT_LE(problem.errors(problem.forward()).excess, kStoreUlp) << "forward";
      EXPECT_LE(problem.errors(problem.backward()).excess, kStoreUlp) << "backward";
    });
  }
};
class LayerNormGuarantees : public NormGuarantees {};

INSTANTIATE_TEST_SUITE_P(All, NormGuarantees, testing::ValuesIn(configurations()),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(All, LayerNormGuarantees,
                         testing::ValuesIn(configurations().begin(),
                                           configurations().begin() + 11),
                         kNameOf);

// Guards against a variance out of sum(x^2) and sum(x)^2, which are nearly equal where
// the mean is large: the difference of two roundings.
TEST_P(LayerNormGuarantees, ALargeMeanTakesNothingFromASmallVariance) {
  for (const I64 cols : {aligned_length(GetParam()), odd_length(GetParam())}) {
    with_problem({.rows = 2, .cols = cols},
                 []<typename T, typename W>(Problem<T, W>& problem) {
                   // Neighbours around 4096: 1 ulp apart is all there is.
                   const double step = ulp<T>(4096);
                   unsigned i = 0;
                   for (T& x : problem.x)
                     x = T::from(static_cast<float>(4096 + step * (i++ * 7 % 5)));
                   problem.residual.fill(0);
                   EXPECT_LE(problem.errors(problem.forward()).excess, kStoreUlp);
                 });
  }
}

// The same at its limit: the mean of equal elements, rounded, would differ from them,
// and 1 / sqrt(eps) makes much of it.
TEST_P(LayerNormGuarantees, ARowOfEqualElementsIsTheBias) {
  for (const I64 cols : {aligned_length(GetParam()), odd_length(GetParam())}) {
    with_problem({.rows = 1, .cols = cols},
                 [&]<typename T, typename W>(Problem<T, W>& problem) {
                   problem.x.fill(1234.567F);
                   problem.residual.fill(0);
                   const auto out = problem.forward();
                   for (I64 j = 0; j < cols; ++j) {
                     const auto at = static_cast<std::size_t>(j);
                     const double b = problem.has_bias() ? problem.bias[at].value() : 0;
                     EXPECT_NEAR(out.y[at].value(), b, ulp<T>(b) / 2 + 1e-6) << j;
                   }
                 });
  }
}

// Guards against eps added to the deviation, or left out: where the variance is far
// below it, the results are a hundred times too small or too large.
TEST_P(NormGuarantees, EpsIsAddedToTheVarianceUnderTheRoot) {
  with_problem({.rows = 2, .cols = aligned_length(GetParam()), .eps = 1e-2F},
               []<typename T, typename W>(Problem<T, W>& problem) {
                 for (T& x : problem.x)
                   x = T::from(static_cast<float>(x.value()) * 0.001F);
                 problem.residual.fill(0);
                 const auto out = problem.forward();
                 EXPECT_LE(problem.errors(out).excess, kStoreUlp);
                 EXPECT_NEAR(out.rstd[0].value(), 10, 0.1);
               });
}

// Guards against gradients of the weight that lose rows: those that are left over when
// the blocks have taken equal shares, and those of teams that end before the others.
TEST_P(NormGuarantees, EveryRowCountsForTheWeightWhateverTheirNumber) {
  const I64 cols = aligned_length(GetParam());
  for (const I64 rows : {1, 2, 7, 16, 17, 33, 61}) {
    if (cols < 5000 || rows == 2)
      check({.rows = rows, .cols = cols, .multiprocessors = 1});
  }
  check({.rows = cols < 5000 ? 41 : 3,
         .cols = odd_length(GetParam()),
         .multiprocessors = 1});
}

// Guards against a vector that crosses the end of its row and takes the next row's
// elements along. Their NaN would be seen.
TEST_P(NormGuarantees, TheTailOfARowReadsNoOther) {
  const I64 longest = row_lengths(GetParam()).back();
  for (const I64 less : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const I64 cols = std::min<I64>(longest, 1032) - less;
    if (GetParam().max_cols == 0 || cols < 513)
      continue;
    with_problem({.rows = 3, .cols = cols},
                 []<typename T, typename W>(Problem<T, W>& problem) {
                   const auto n = problem.x.size() / 3;
                   for (std::size_t j = 0; j < n; ++j) {
                     problem.x[j] = T::from(kNaN);
                     problem.x[2 * n + j] = T::from(kNaN);
                   }
                   Errors errors;
                   problem.row_errors(problem.forward(), 1, errors);
                   EXPECT_LE(errors.excess, kStoreUlp);
                 });
  }
}

// Guards against long rows whose columns' sums do not fit: a device with little shared
// memory goes over the rows chunk by chunk.
TEST_P(NormGuarantees, LongRowsAreRightWithLittleSharedMemory) {
  if (GetParam().max_cols == 0) {
    for (const I64 cols : {12304, 12299})
      check({.rows = 2, .cols = cols, .multiprocessors = 1, .capability = {7, 5}});
  }
}

TEST_P(NormGuarantees, NaNStaysInItsRow) {
  with_problem({.rows = 3, .cols = aligned_length(GetParam())},
               []<typename T, typename W>(Problem<T, W>& problem) {
                 const auto n = problem.x.size() / 3;
                 problem.x[n + 5] = T::from(kNaN);
                 const auto out = problem.forward();
                 for (std::size_t i = 0; i < 3 * n; ++i)
                   EXPECT_EQ(std::isnan(out.y[i].value()), i / n == 1) << i;
               });
}

}  // namespace
}  // namespace kiln::norm_test
