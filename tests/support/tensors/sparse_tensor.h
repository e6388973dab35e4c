// Tensors larger than any machine's memory, for offsets beyond 32 bits.

#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/kernels/guarded_memory.h"

namespace kiln::test {

/// Takes no room but where it is touched, and is 0 there at first.
template <typename T>
class SparseTensor {
 public:
  /// Of `size` elements, rows of which begin `row_stride` apart.
  SparseTensor(const char* name, std::int64_t size, std::int64_t row_stride = 1)
      : memory_(name, static_cast<std::size_t>(size) * sizeof(T), {}),
        row_stride_(row_stride) {}

  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] T* row(std::int64_t number) { return data() + number * row_stride_; }
  T& operator[](std::int64_t at) { return data()[at]; }

 private:
  kiln_cpu::GuardedMemory memory_;
  std::int64_t row_stride_;
};

}  // namespace kiln::test
