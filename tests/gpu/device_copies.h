// The tensors of a problem on the current device: each guarded memory of the host has a
// copy there, as far from a 256-byte boundary, between bounds that nobody may write to.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/gpu/on_device.h"
#include "tests/support/kernels/guarded_memory.h"

namespace kiln::gpu_test {

/// Of one memory.
class DeviceCopy {
 public:
  explicit DeviceCopy(kiln_cpu::GuardedMemory& host);

  /// Whether a host's address leads into it, and to where it then leads on the device.
  [[nodiscard]] bool holds(std::uint64_t address) const;
  [[nodiscard]] std::uint64_t moved(std::uint64_t address) const;

  /// What the device has, into writable memory. With a failure of the test for a bound,
  /// or memory that is not writable, that is not as it was.
  void take_back() const;

 private:
  [[nodiscard]] std::uint64_t host_address() const;

  kiln_cpu::GuardedMemory& host_;
  std::size_t begin_;  // in the array
  DeviceArray<std::byte> array_;
};

/// Of every memory that there is.
class DeviceCopies {
 public:
  DeviceCopies();
  void take_back() const;

  /// `args` with each of its pointers into a memory led to the copy. An argument struct
  /// has nothing else of 8 bytes that could be an address of this process.
  template <typename Args>
  [[nodiscard]] Args moved(const Args& args) const {
    using Words = std::array<std::uint64_t, sizeof(Args) / sizeof(std::uint64_t)>;
    auto words = std::bit_cast<Words>(args);
    for (std::uint64_t& word : words) word = moved_word(word);
    return std::bit_cast<Args>(words);
  }

 private:
  [[nodiscard]] std::uint64_t moved_word(std::uint64_t word) const;

  std::vector<std::unique_ptr<DeviceCopy>> copies_;
};

}  // namespace kiln::gpu_test
