// The device code of before.cu.
#include <cuda_fp16.h>

#include <cub/block/block_reduce.cuh>

#include "detail/sizes.h"

__constant__ float weights[kMaxColumns];

// sums[row] = scale * the sum of weights[column] * in[row, column]; a block a row.
template <typename T, int kThreads>
__global__ void weighted_sums(float* sums, const T* in, float scale, int columns) {
  using Reduce = cub::BlockReduce<float, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const T* const row = in + static_cast<long long>(blockIdx.x) * columns;
  float sum = 0;
  for (int i = 0; i < ceil_div(columns, kThreads); ++i) {
    const int column = i * kThreads + threadIdx.x;
    if (column < columns)
      sum += weights[column] * static_cast<float>(row[column]);
  }
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0)
    sums[blockIdx.x] = scale * sum;
}
