#include "ops/cudnn_tensors.h"

namespace kiln::ops {
namespace {

using attention::TensorPointer;
using attention::TensorRole;

/// cuDNN takes every address as one that might be written.
void* address(const void* pointer) {
  return const_cast<void*>(pointer);
}

}  // namespace

std::vector<TensorPointer> cudnn_tensors(const AttentionCall& call, float& scale) {
  const attention::Problem& problem = call.problem;
  const AttentionTensors& given = call.tensors;
  std::vector<TensorPointer> all{{TensorRole::kQ, address(given.q)},
                                 {TensorRole::kK, address(given.k)},
                                 {TensorRole::kV, address(given.v)},
                                 {TensorRole::kO, given.o},
                                 {TensorRole::kScale, &scale}};
  if (problem.stats)
    all.push_back({TensorRole::kStats, given.stats});
  if (problem.bias == attention::Bias::kPostScale)
    all.push_back({TensorRole::kBias, address(given.bias)});
  if (attention::is_padded(problem.mask)) {
    all.push_back({TensorRole::kLengthsQ, address(given.lengths_q)});
    all.push_back({TensorRole::kLengthsKv, address(given.lengths_kv)});
  }
  if (problem.dropout > 0) {
    all.push_back({TensorRole::kDropoutSeed, address(given.dropout_seed)});
    all.push_back({TensorRole::kDropoutOffset, address(given.dropout_offset)});
  }
  if (problem.pass == attention::Pass::kForward)
    return all;
  all.push_back({TensorRole::kGradO, address(given.grad_o)});
  all.push_back({TensorRole::kGradQ, given.grad_q});
  all.push_back({TensorRole::kGradK, given.grad_k});
  all.push_back({TensorRole::kGradV, given.grad_v});
  if (problem.bias_gradient)
    all.push_back({TensorRole::kGradBias, given.grad_bias});
  return all;
}

}  // namespace kiln::ops
