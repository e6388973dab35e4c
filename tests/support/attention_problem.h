// Attention problems that tests begin with, and the published devices that plans are
// for.

#pragma once

#include <functional>
#include <string>

#include "attention/problem.h"
#include "device/device_properties.h"
#include "device/profile.h"

namespace kiln::test {

/// Of contiguous tensors; what is not set is a batch of 1, as many heads of key as of
/// query, and values as wide as keys.
inline attention::Problem problem_of(attention::Problem problem) {
  if (problem.batch == 0)
    problem.batch = 1;
  if (problem.kv_heads == 0)
    problem.kv_heads = problem.heads;
  if (problem.dv == 0)
    problem.dv = problem.dqk;
  set_strides(problem);
  return problem;
}

inline attention::Problem problem_of(const ops::AttentionProblem& problem) {
  return problem_of(attention::Problem{problem, {}});
}

/// Of a query's tensor or a key's.
struct Sizes {
  std::int64_t batch, heads, sequence, dim;
};

/// Of a query and a key of those sizes; `more` says all else.
inline ops::AttentionProblem sized(const Sizes& q, const Sizes& k,
                                   ops::AttentionProblem more = {}) {
  more.batch = q.batch;
  more.heads = q.heads;
  more.kv_heads = k.heads;
  more.sq = q.sequence;
  more.skv = k.sequence;
  more.dqk = q.dim;
  return more;
}

inline attention::Problem problem_of(const Sizes& q, const Sizes& k,
                                     const ops::AttentionProblem& more = {}) {
  return problem_of(sized(q, k, more));
}
inline attention::Problem problem_of(ops::DType dtype, const Sizes& q, const Sizes& k,
                                     ops::AttentionProblem more = {}) {
  more.dtype = dtype;
  return problem_of(q, k, more);
}

/// Makes another problem of one; its strides are set afterwards.
using ProblemChange = std::function<void(attention::Problem&)>;

/// bf16, a batch of 2, 256 tokens with head dimension 64, which cuDNN runs everywhere.
inline attention::Problem attention_problem(const ProblemChange& change = {}) {
  attention::Problem problem{{.dtype = ops::DType::kBf16,
                              .batch = 2,
                              .heads = 4,
                              .kv_heads = 4,
                              .sq = 256,
                              .skv = 256,
                              .dqk = 64,
                              .dv = 64},
                             {}};
  if (change)
    change(problem);
  set_strides(problem);
  return problem;
}

/// As models have them: bf16, a batch of 2, 16 heads, 1024 by 1024, head dimension 128,
/// no mask, bshd.
inline attention::Problem usual_attention_problem(const ProblemChange& change = {}) {
  return attention_problem([&](attention::Problem& problem) {
    problem.heads = problem.kv_heads = 16;
    problem.sq = problem.skv = 1024;
    problem.dqk = problem.dv = 128;
    if (change)
      change(problem);
  });
}

/// Of the gradients of that forward pass.
inline attention::Problem backward_of(attention::Problem problem) {
  problem.pass = attention::Pass::kBackward;
  problem.training = true;
  return problem;
}

/// What a program gives besides its problem to ask for that.
inline ops::AttentionOptions options_of(const attention::Problem& problem) {
  return {.stats = problem.stats || problem.training,
          .bias_gradient = problem.bias_gradient,
          .deterministic = problem.deterministic,
          .capture = problem.capture};
}

/// The calls of a program, of the problem's pass.
inline Result<ops::AttentionChoice> prepare(Service& service, const Device& device,
                                            const attention::Problem& problem) {
  const auto prepare = problem.pass == attention::Pass::kForward
                           ? ops::prepare_attention_forward
                           : ops::prepare_attention_backward;
  return prepare(service, device, problem, options_of(problem));
}
inline Result<void> call(Service& service, const Device& device, CUstream_st* stream,
                         const attention::Problem& problem,
                         const ops::AttentionTensors& tensors) {
  const auto call = problem.pass == attention::Pass::kForward ? ops::attention_forward
                                                              : ops::attention_backward;
  return call(service, device, stream, problem, tensors, options_of(problem));
}

/// By the name of its profile, "h200".
inline device::DeviceProperties published_device(const std::string& name) {
  return device::read_device_properties(name).value();
}

}  // namespace kiln::test
