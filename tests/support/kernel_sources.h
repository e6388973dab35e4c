// CUDA C++ for tests of what compiles it.

#pragma once

#include <string>

namespace kiln::test {

inline constexpr const char* kSmallKernel =
    "extern \"C\" __global__ void scale(float* x, float by) {\n"
    "  x[threadIdx.x] *= by;\n"
    "}\n";

/// Takes NVRTC many minutes: thousands of range reductions in one function.
inline std::string endless_kernel() {
  std::string source =
      "extern \"C\" __global__ void f(double* x) {\n  double a = *x;\n";
  for (int i = 0; i < 30000; ++i)
    source += "  a += sin(a * " + std::to_string(i) + ".5);\n";
  return source + "  *x = a;\n}\n";
}

}  // namespace kiln::test
