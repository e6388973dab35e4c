// Tensors for kernels that run on the CPU: behind guards, placed where a test wants
// them.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/kernels/guarded_memory.h"

namespace kiln::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Where a tensor lies.
struct Place {
  /// From a 16-byte boundary, in elements. Unset: what Side gives.
  std::optional<std::size_t> offset{};
  kiln_cpu::Side exact = kiln_cpu::Side::kEnd;
};

/// Elements of T behind guards, NaN at first.
template <typename T>
class GuardedTensor {
 public:
  GuardedTensor(const char* name, std::size_t size, const Place& place = {})
      : memory_(std::make_unique<kiln_cpu::GuardedMemory>(name, size * sizeof(T),
                                                          placement(place))),
        size_(size) {
    fill(kNaN);
  }
  void fill(float value) { std::fill(begin(), end(), T::from(value)); }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_->data()); }
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(memory_->data());
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] kiln_cpu::GuardedMemory& memory() const { return *memory_; }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* end() const { return data() + size_; }
  T& operator[](std::size_t at) { return data()[at]; }
  const T& operator[](std::size_t at) const { return data()[at]; }

  friend bool same_bits(const GuardedTensor& a, const GuardedTensor& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }

 private:
  static kiln_cpu::Placement placement(const Place& place) {
    kiln_cpu::Placement placement{.exact = place.exact};
    if (place.offset) {
      placement.past_boundary = *place.offset * sizeof(T);
    }
    return placement;
  }
  std::unique_ptr<kiln_cpu::GuardedMemory> memory_;
  std::size_t size_;
};

/// A number of the device's as an element; `kPoison` for any float.
template <typename Number, Number kPoison>
struct Whole {
  Number bits;
  static Whole from(float /*value*/) { return {kPoison}; }
};
using Int = Whole<std::int32_t, -1000000>;

/// With the numbers of `from`.
inline GuardedTensor<Int> ints(const char* name,
                               const std::vector<std::int32_t>& from) {
  GuardedTensor<Int> tensor(name, from.size());
  std::ranges::transform(from, tensor.begin(), [](auto number) { return Int{number}; });
  return tensor;
}

/// Tensors that are read-only while it lives.
template <typename... Tensors>
class ReadOnly {
 public:
  explicit ReadOnly(const Tensors&... tensors) : memories_{&tensors.memory()...} {
    for (auto* const memory : memories_) memory->make_read_only();
  }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;
  ~ReadOnly() {
    for (auto* const memory : memories_) memory->make_writable();
  }

 private:
  std::array<kiln_cpu::GuardedMemory*, sizeof...(Tensors)> memories_;
};

}  // namespace kiln::test
