// CUDA C++ for tests of what compiles it.

#pragma once

#include <string>

namespace kiln::test {

inline constexpr const char* kSmallKernel =
    "extern \"C\" __global__ void scale(float* x, float by) {\n"
    "  x[threadIdx.x] *= by;\n"
    "}\n";

/// So many range reductions in one function; 150 take NVRTC a second or two.
inline std::string slow_kernel(int reductions) {
  std::string source =
      "extern \"C\" __global__ void f(double* x) {\n  double a = *x;\n";
  for (int i = 0; i < reductions; ++i)
    source += "  a += sin(a * " + std::to_string(i) + ".5);\n";
  return source + "  *x = a;\n}\n";
}

/// Takes NVRTC many minutes.
inline std::string endless_kernel() {
  return slow_kernel(30000);
}

}  // namespace kiln::test
