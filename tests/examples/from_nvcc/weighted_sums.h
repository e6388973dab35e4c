// The library: what before.cu had as set_weights() and run(), for a device.

#pragma once

#include <kiln/kiln.h>

#include <vector>

enum class Element { kFloat, kHalf };

class WeightedSums {
 public:
  /// Finds the kernels in the cache, or builds them.
  static kiln::Result<WeightedSums> open(kiln::Service& service,
                                         const kiln::Device& device);

  kiln::Result<void> set_weights(const std::vector<float>& values) const;

  kiln::Result<void> run(float* sums, const void* in, Element element, float scale,
                         int rows, int columns, CUstream_st* stream) const;

 private:
  explicit WeightedSums(kiln::Kernel kernels) : kernels_(std::move(kernels)) {}

  kiln::Kernel kernels_;  // of one module, which has its own copy of `weights`
};
