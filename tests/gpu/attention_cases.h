// Attention problems for real devices, with a name each.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/gpu/operations_on_device.h"
#include "tests/integration/attention_kernel/call.h"
#include "tests/support/attention_words.h"
#include "tests/support/print_name.h"

namespace kiln::gpu_test {

using test::PrintTo;

struct AttentionCase {
  const char* name;
  ops::AttentionProblem problem;
  attention_test::Setting setting{};
  const char* bias_sizes = nullptr;  // test::set_bias_sizes()
};

inline std::string name_of(const testing::TestParamInfo<AttentionCase>& info) {
  return info.param.name;
}

/// Sequences without queries, with fewer keys than queries, of one query.
inline AttentionCase packed(const char* name, ops::DType dtype, std::int64_t dqk,
                            std::int64_t dv) {
  return {name,
          test::sized({4, 4, 70, dqk}, {4, 2, 90, dqk},
                      {.dtype = dtype,
                       .dv = dv,
                       .layout = attention::Layout::kThd,
                       .mask = attention::Mask::kPaddingCausalBottomRight}),
          {.lengths_q = {70, 33, 0, 1}, .lengths_kv = {20, 90, 7, 5}}};
}

inline AttentionCase padded(const char* name, ops::DType dtype, std::int64_t dim,
                            attention::Mask mask = attention::Mask::kPadding) {
  return {name,
          test::sized({4, 2, 70, dim}, {4, 2, 90, dim}, {.dtype = dtype, .mask = mask}),
          {.lengths_q = {70, 33, 1, 0}, .lengths_kv = {20, 90, 7, 64}}};
}

/// One sequence of 130 queries and 150 keys, with what `more` has.
inline AttentionCase one(const char* name, ops::DType dtype, std::int64_t dim,
                         ops::AttentionProblem more = {}) {
  more.dtype = dtype;
  more.heads = more.heads == 0 ? 2 : more.heads;
  more.sq = 130;
  more.skv = 150;
  more.dqk = dim;
  return {name, more};
}

/// Of two sequences, with a bias of these sizes.
inline AttentionCase biased(const char* sizes) {
  AttentionCase made = one(sizes, ops::DType::kBf16, 64,
                           {.batch = 2, .bias_kind = attention::Bias::kPostScale});
  made.bias_sizes = sizes;
  return made;
}

inline AttentionCase in_layout(const char* name, attention::Layout layout) {
  AttentionCase made =
      one(name, ops::DType::kBf16, 64, {.mask = attention::Mask::kCausal});
  made.problem.batch = 2;
  made.problem.layout = layout;
  return made;
}

inline ops::AttentionProblem group(attention::Mask mask, std::int64_t dv = 0) {
  return {.heads = 4, .kv_heads = 1, .dv = dv, .mask = mask};
}

inline ops::AttentionProblem window(std::int64_t left, std::int64_t right) {
  return {.window_left = left, .window_right = right};
}

class AttentionCasesTest : public GpuResultsTest,
                           public testing::WithParamInterface<AttentionCase> {
 protected:
  /// Of the size that whoever computes here can do.
  static attention::Problem problem_of(const AttentionCase& which) {
    ops::AttentionProblem sizes = which.problem;
    if (which.setting.lengths_q.empty()) {
      sizes.sq = many(sizes.sq, std::min<std::int64_t>(sizes.sq, 34));
      sizes.skv = many(sizes.skv, std::min<std::int64_t>(sizes.skv, 50));
    }
    attention::Problem problem = attention_test::problem_of(sizes);
    if (which.bias_sizes != nullptr)
      test::set_bias_sizes(problem, which.bias_sizes);
    problem.bias_gradient = may_have_bias_gradient(problem);
    return problem;
  }
  template <typename Body>
  static void with_type(const AttentionCase& which, const Body& body) {
    test::with_type(which.problem.dtype, body);
  }
};

}  // namespace kiln::gpu_test
