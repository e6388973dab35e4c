// The same kernel on a device, where the program has one: gpu_ptx_test does, ptx_unit
// does not. What the interpreter computes is then what the device computes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tests/support/ptx/interpreter.h"

namespace kiln::ptx::test {

/// A kernel "k" of PTX for sm_100. Its parameters are the addresses of `in`, if there
/// is one, and of `out`.
struct DeviceLaunch {
  std::string text{};
  Extent grid{1, 1, 1};
  Extent block{1, 1, 1};
  std::size_t dynamic_shared_bytes = 0;
  std::span<const std::byte> in{};
  std::span<const std::byte> initial{};  // of out
};

/// How far a device's results may lie from the interpreter's, which are the exact ones
/// rounded: that is the error that the PTX ISA permits.
struct Nearness {
  std::uint64_t units = 0;  // in the last place
  std::size_t bytes = 4;    // of a number: an element may have two
  double absolute = 0;      // or so much, of float
};

/// Fails the test where a device leaves other elements than `computed`, each of `size`
/// bytes. `text` is the instruction, for the message.
void expect_as_on_device(const DeviceLaunch& launch, const std::string& text,
                         std::span<const std::byte> computed, std::size_t size,
                         const Nearness& near = {});

}  // namespace kiln::ptx::test
