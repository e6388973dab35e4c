// A small attention problem, and the published devices that its plans are for.

#pragma once

#include <functional>
#include <string>

#include "attention/problem.h"
#include "device/device_properties.h"
#include "device/profile.h"

namespace kiln::test {

/// 256 tokens with head dimension 64, which cuDNN runs everywhere; `change` makes it
/// another problem.
inline attention::Problem attention_problem(
    const std::function<void(attention::Problem&)>& change = {}) {
  attention::Problem problem{.dtype = ops::DType::kBf16,
                             .batch = 2,
                             .heads = 4,
                             .kv_heads = 4,
                             .sq = 256,
                             .skv = 256,
                             .dqk = 64,
                             .dv = 64};
  if (change)
    change(problem);
  set_strides(problem);
  return problem;
}

/// By the name of its profile, "h200".
inline device::DeviceProperties published_device(const std::string& name) {
  return device::read_device_properties(name).value();
}

}  // namespace kiln::test
