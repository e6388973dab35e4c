#include "tests/gpu/device_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace kiln::gpu_test {
namespace {

constexpr std::size_t kBoundary = 256;
constexpr std::size_t kBound = 1024;  // bytes on either side
// A large negative number as float and bf16, NaN as f16.
constexpr std::byte kPattern{0xfe};

std::span<const std::byte> bytes_of(const kiln_cpu::GuardedMemory& memory) {
  return {memory.data(), memory.size()};
}

std::vector<std::byte> between_bounds(const kiln_cpu::GuardedMemory& host,
                                      std::size_t begin) {
  std::vector<std::byte> all(begin + host.size() + kBound, kPattern);
  std::memcpy(all.data() + begin, host.data(), host.size());
  return all;
}

bool is_pattern(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == kPattern; });
}

/// Of one size. Far faster in a debug build than std::ranges::equal.
bool is_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

DeviceCopy::DeviceCopy(kiln_cpu::GuardedMemory& host)
    : host_(host),
      begin_(kBound + host_address() % kBoundary),
      array_(std::span<const std::byte>(between_bounds(host, begin_))) {}

std::uint64_t DeviceCopy::host_address() const {
  return reinterpret_cast<std::uint64_t>(host_.data());
}

bool DeviceCopy::holds(std::uint64_t address) const {
  return address >= host_address() && address - host_address() < host_.size();
}

std::uint64_t DeviceCopy::moved(std::uint64_t address) const {
  return array_.address() + begin_ + (address - host_address());
}

void DeviceCopy::take_back() const {
  const std::vector<std::byte> all = array_.download();
  const std::span<const std::byte> bytes(all);
  const auto tensor = bytes.subspan(begin_, host_.size());
  EXPECT_TRUE(is_pattern(bytes.first(begin_))) << "written before " << host_.name();
  EXPECT_TRUE(is_pattern(bytes.subspan(begin_ + host_.size())))
      << "written behind " << host_.name();
  if (host_.is_writable()) {
    std::memcpy(host_.data(), tensor.data(), tensor.size());
  } else {
    EXPECT_TRUE(is_equal(tensor, bytes_of(host_))) << "written: " << host_.name();
  }
}

DeviceCopies::DeviceCopies() {
  for (kiln_cpu::GuardedMemory* const memory : kiln_cpu::GuardedMemory::all()) {
    if (memory->size() != 0)
      copies_.push_back(std::make_unique<DeviceCopy>(*memory));
  }
}

void DeviceCopies::take_back() const {
  for (const auto& copy : copies_) copy->take_back();
}

std::uint64_t DeviceCopies::moved_word(std::uint64_t word) const {
  const auto found = std::ranges::find_if(
      copies_, [&](const auto& each) { return each->holds(word); });
  return found == copies_.end() ? word : (*found)->moved(word);
}

}  // namespace kiln::gpu_test
