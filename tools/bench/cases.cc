#include "tools/bench/cases.h"

namespace kiln::tools {

std::vector<BenchCase> bench_cases(const Device& device) {
  std::vector<BenchCase> cases;
  for (const ops::DType dtype :
       {ops::DType::kBf16, ops::DType::kF16, ops::DType::kF32}) {
    add_memory_cases(cases, dtype, device);
    add_attention_cases(cases, dtype, device);
  }
  return cases;
}

}  // namespace kiln::tools
