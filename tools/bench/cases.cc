#include "tools/bench/cases.h"

#include "tools/bench/families.h"

namespace kiln::tools {

std::vector<BenchCase> bench_cases(const Device& device) {
  std::vector<BenchCase> cases;
  for (const ops::DType dtype :
       {ops::DType::kBf16, ops::DType::kF16, ops::DType::kF32}) {
    add_softmax_cases(cases, dtype);
    add_rope_cases(cases, dtype);
    add_norm_cases(cases, dtype, device);
    add_activation_cases(cases, dtype, device);
    add_cross_entropy_cases(cases, dtype);
    add_attention_cases(cases, dtype, device);
  }
  return cases;
}

}  // namespace kiln::tools
