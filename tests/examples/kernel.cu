// A kernel that is a template, and one that is not: the guide's commands compile this file.
#include "scale.h"

template <typename T>
__global__ void scale(T* x) {
  x[threadIdx.x] = times_n(x[threadIdx.x]);
}

extern "C" __global__ void scale_floats(float* x) {
  x[threadIdx.x] = times_n(x[threadIdx.x]);
}
