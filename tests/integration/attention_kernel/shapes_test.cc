// Attention's kernels against double: types, head dimensions, masks, layouts, lengths.

#include <gtest/gtest.h>

#include <utility>

#include "tests/integration/attention_kernel/check.h"
#include "tests/integration/attention_kernel/element.h"

namespace kiln::attention_test {
namespace {

class AttentionShapes : public testing::TestWithParam<Element> {
 protected:
  /// Both passes, for the parameter's type and device.
  static void check(Problem problem, Setting setting = {}) {
    problem.dtype = GetParam().dtype;
    setting.capability = GetParam().capability;
    check_both(problem, setting);
  }
};

INSTANTIATE_TEST_SUITE_P(Types, AttentionShapes, testing::ValuesIn(kElements),
                         [](const auto& one) { return test_name(one.param); });

// Those that a kernel is for are in crossed_test.cc.
TEST_P(AttentionShapes, AreRightForHeadDimensionsThatZerosFillUp) {
  for (const auto& [dqk, dv] :
       std::initializer_list<std::pair<I64, I64>>{{8, 8}, {72, 40}, {200, 136}})
    check(problem_of({1, 2, 33, dqk}, {1, 1, 49, dqk},
                     {.dv = dv, .mask = Mask::kCausalBottomRight}));
}

TEST_P(AttentionShapes, AreRightOverSeveralTilesOfEveryHeadDimension) {
  for (const auto& [dqk, dv] :
       std::initializer_list<std::pair<I64, I64>>{{128, 128}, {192, 128}, {256, 256}})
    check(problem_of({.heads = 1, .sq = 130, .skv = 150, .dqk = dqk, .dv = dv}));
}

TEST_P(AttentionShapes, AreRightForHeadDimensionsThatTensorCoresDoNotTake) {
  for (const auto& [dqk, dv] :
       std::initializer_list<std::pair<I64, I64>>{{1, 1}, {7, 64}, {65, 33}, {255, 12}})
    check(problem_of({.heads = 1, .sq = 19, .skv = 35, .dqk = dqk, .dv = dv}));
}

TEST_P(AttentionShapes, AreRightForEveryLength) {
  for (const auto& [sq, skv] : std::initializer_list<std::pair<I64, I64>>{{1, 1},
                                                                          {1, 70},
                                                                          {70, 1},
                                                                          {63, 65},
                                                                          {64, 64},
                                                                          {65, 63},
                                                                          {130, 17},
                                                                          {17, 130}})
    check(problem_of({.heads = 1, .sq = sq, .skv = skv, .dqk = 64}));
}

TEST_P(AttentionShapes, AreRightForEveryMask) {
  for (const auto& [sq, skv] :
       std::initializer_list<std::pair<I64, I64>>{{70, 70}, {40, 100}, {100, 40}}) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal, Mask::kCausalBottomRight})
      check(problem_of({.heads = 1, .sq = sq, .skv = skv, .dqk = 64, .mask = mask}));
  }
}

TEST_P(AttentionShapes, AreRightForEveryWindow) {
  for (const auto& [left, right] : std::initializer_list<std::pair<I64, I64>>{
           {0, 0}, {5, -1}, {-1, 7}, {20, 30}, {1000, 1000}}) {
    Problem problem = problem_of({.heads = 1, .sq = 70, .skv = 90, .dqk = 64});
    problem.window_left = left;
    problem.window_right = right;
    check(problem);
    problem.mask = Mask::kCausalBottomRight;
    problem.window_right = -1;
    check(problem);
  }
}

TEST_P(AttentionShapes, AreRightWhereOneQueryOfATileSeesOneKeyOfTheNext) {
  Problem problem = problem_of({.heads = 1, .sq = 70, .skv = 70, .dqk = 64});
  problem.window_left = 1;  // query 64 and key 63
  problem.window_right = 1;
  check(problem);
  check(problem_of(
      {.heads = 1, .sq = 70, .skv = 71, .dqk = 64, .mask = Mask::kCausalBottomRight}));
}

TEST_P(AttentionShapes, AreRightWhereSomeQueriesOfATileSeeAllKeysOfAnother) {
  Problem problem = problem_of({.heads = 1, .sq = 130, .skv = 150, .dqk = 64});
  problem.window_left = 70;  // query 64 sees the keys from 0 on, and query 127 does not
  problem.window_right = 70;
  check(problem);
}

TEST_P(AttentionShapes, AreRightForPaddedSequences) {
  for (const Mask mask :
       {Mask::kPadding, Mask::kPaddingCausal, Mask::kPaddingCausalBottomRight})
    check(problem_of({4, 2, 70, 64}, {4, 1, 90, 64}, {.mask = mask}),
          {.lengths_q = {70, 33, 1, 0}, .lengths_kv = {20, 90, 7, 64}});
}

TEST_P(AttentionShapes, AreRightForPackedSequences) {
  for (const Mask mask :
       {Mask::kPadding, Mask::kPaddingCausal, Mask::kPaddingCausalBottomRight})
    check(problem_of({4, 2, 70, 64}, {4, 1, 90, 64},
                     {.layout = Layout::kThd, .mask = mask}),
          {.lengths_q = {70, 33, 0, 1}, .lengths_kv = {20, 90, 7, 0}});
}

TEST_P(AttentionShapes, AreRightForPackedSequencesThatEndBeforeTheNextBegins) {
  check(problem_of({3, 2, 40, 64}, {3, 1, 60, 64},
                   {.layout = Layout::kThd, .mask = Mask::kPaddingCausal}),
        {.lengths_q = {40, 33, 20},
         .lengths_kv = {20, 60, 7},
         .tokens_q = {40, 12, 0},
         .tokens_kv = {19, 60, 3}});
}

TEST_P(AttentionShapes, AreRightWhereQueriesSeeNoKey) {
  Problem problem = problem_of(
      {.heads = 1, .sq = 90, .skv = 20, .dqk = 64, .mask = Mask::kCausalBottomRight});
  check(problem);  // the first 70 see none
  problem.mask = Mask::kNone;
  problem.window_left = 3;  // those from 24 on see none
  check(problem);
}

TEST_P(AttentionShapes, AreRightOffAlignment) {
  check(problem_of({.heads = 2, .sq = 20, .skv = 40, .dqk = 64}), {.offset = 1});
}

TEST_P(AttentionShapes, AreRightForScalesOfEverySign) {
  for (const float scale : {0.0F, -0.5F, 2.0F})
    check(problem_of({.heads = 1, .sq = 20, .skv = 40, .dqk = 64}), {.scale = scale});
}

}  // namespace
}  // namespace kiln::attention_test
