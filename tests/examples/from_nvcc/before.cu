// Weighted sums of rows, for nvcc: device code, host code and a program in one file.
// nvcc -O3 --expt-relaxed-constexpr -gencode arch=compute_80,code=sm_80 before.cu

#include <cuda_fp16.h>

#include <cub/block/block_reduce.cuh>
#ifndef __CUDACC_RTC__
#include <cstdio>
#include <vector>
#endif

constexpr int kMaxColumns = 1024;
__constant__ float weights[kMaxColumns];

constexpr int ceil_div(int n, int by) {
  return (n + by - 1) / by;
}

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

#ifndef __CUDACC_RTC__
cudaError_t set_weights(const std::vector<float>& values) {
  return cudaMemcpyToSymbol(weights, values.data(), values.size() * sizeof(float));
}

template <typename T>
cudaError_t run(float* sums, const T* in, int scale, int rows, int columns,
                cudaStream_t stream) {
  const int threads = 128;
  weighted_sums<T, 128><<<rows, threads, 0, stream>>>(sums, in, scale, columns);
  return cudaGetLastError();
}

int main() {
  const int rows = 3, columns = 200;
  std::vector<float> in(rows * columns, 0.5F), sums(rows);
  float *in_on_device = nullptr, *sums_on_device = nullptr;
  cudaMalloc(&in_on_device, in.size() * sizeof(float));
  cudaMalloc(&sums_on_device, sums.size() * sizeof(float));
  cudaMemcpy(in_on_device, in.data(), in.size() * sizeof(float), cudaMemcpyDefault);
  set_weights(std::vector<float>(columns, 2));
  run(sums_on_device, in_on_device, 10, rows, columns, nullptr);
  cudaMemcpy(sums.data(), sums_on_device, rows * sizeof(float), cudaMemcpyDefault);
  for (const float sum : sums) std::printf("%g\n", sum);  // 2000
}
#endif
