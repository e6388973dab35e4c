// The struct that the kernels of templates/attention take by value. It matches
// kiln_attention in problem.cu.mustache member by member.

#pragma once

#include <cstdint>

namespace kiln::ops {

/// In elements.
struct TensorStrides {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t group;  // added once per preceding group of heads: group_gap()
  std::int64_t row;
};

struct AttentionSizes {
  TensorStrides q;
  TensorStrides k;
  TensorStrides v;
  TensorStrides o;
  TensorStrides bias;
  std::int32_t batch;
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t sq;
  std::int32_t skv;
  std::int32_t tokens_q;
  std::int32_t tokens_kv;
  std::int32_t dqk;
  std::int32_t dv;
  std::int32_t left;
  std::int32_t right;
  std::int32_t bottom_right;
  float scale;
  std::int32_t dropped;
};
static_assert(sizeof(AttentionSizes) == 20 * 8 + 14 * 4);

}  // namespace kiln::ops
