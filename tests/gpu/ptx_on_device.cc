// The kernels of the interpreter's tests on the first device.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "tests/gpu/driver.h"
#include "tests/gpu/on_device.h"
#include "tests/unit/ptx/on_device.h"

namespace kiln::ptx::test {
namespace {

using gpu_test::driver;
using gpu_test::must;

bool has_device() {
  int count = 0;
  return gpu_test::find_driver() != nullptr &&
         driver().cuDeviceGetCount(&count) == CUDA_SUCCESS && count != 0;
}

/// The target of the device, with all that it has.
std::string target_of(const gpu_test::OnDevice& device) {
  const int major = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

/// The first one, whose context lives as long as the process: a context takes longer to
/// make than most of these kernels to run.
const gpu_test::OnDevice& first_device() {
  static const auto* const made = new gpu_test::OnDevice(0);
  return *made;
}

/// Null where the device has not all of its instructions, which is said. Throws where
/// the driver does not load it for another reason, such as a version of PTX that is
/// newer than the driver.
CUmodule load(std::string kernel, const std::string& text) {
  constexpr std::string_view kWritten = "sm_100";
  const std::string target = target_of(first_device());
  kernel.replace(kernel.find(kWritten), kWritten.size(), target);
  std::array<char, 4096> said{};
  std::array options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{said.data(), reinterpret_cast<void*>(said.size() - 1)};
  CUmodule module = nullptr;
  const CUresult result = driver().cuModuleLoadDataEx(
      &module, kernel.c_str(), options.size(), options.data(), values.data());
  if (result != CUDA_ERROR_INVALID_PTX) {
    must(result, "cuModuleLoadDataEx");
    return module;
  }
  fmt::print("not compared, since {} does not have it: {}\n{:.300}\n", target, text,
             said.data());
  return nullptr;
}

/// The bytes of `out` after the launch; none where the device lacks an instruction.
/// Throws where a call fails.
std::optional<std::vector<std::byte>> run_on_device(const DeviceLaunch& launch,
                                                    const std::string& text) {
  const CUmodule module = load(launch.text, text);
  if (module == nullptr)
    return std::nullopt;
  CUfunction kernel = nullptr;
  must(driver().cuModuleGetFunction(&kernel, module, "k"), "cuModuleGetFunction");
  gpu_test::DeviceArray<std::byte> in(std::max<std::size_t>(launch.in.size(), 1));
  if (!launch.in.empty())
    in.upload(launch.in);
  const gpu_test::DeviceArray<std::byte> out(launch.initial);
  CUdeviceptr from = in.address();
  CUdeviceptr to = out.address();
  std::array<void*, 2> parameters{&from, &to};
  const auto& [gx, gy, gz] = launch.grid;
  const auto& [bx, by, bz] = launch.block;
  must(driver().cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz,
                               static_cast<unsigned>(launch.dynamic_shared_bytes),
                               nullptr, parameters.data() + (launch.in.empty() ? 1 : 0),
                               nullptr),
       "cuLaunchKernel");
  auto result = out.download();
  must(driver().cuModuleUnload(module), "cuModuleUnload");
  return result;
}

std::uint64_t bits_at(std::span<const std::byte> bytes, std::size_t at,
                      std::size_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + at, size);
  return bits;
}

bool is_near(std::uint64_t here, std::uint64_t there, const Nearness& near) {
  const auto is_float = near.bytes == sizeof(float);
  const auto value = [](std::uint64_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  };
  return std::max(here, there) - std::min(here, there) <= near.units ||
         (is_float && std::fabs(value(here) - value(there)) <= near.absolute);
}

}  // namespace

void expect_as_on_device(const DeviceLaunch& launch, const std::string& text,
                         std::span<const std::byte> computed, std::size_t size,
                         const Nearness& near) {
  if (!has_device())
    return;
  std::optional<std::vector<std::byte>> there;
  try {
    there = run_on_device(launch, text);
  } catch (const std::exception& error) {
    FAIL() << text << ": " << error.what();
  }
  if (!there)
    return;
  const std::size_t each = std::min(near.bytes, size);
  const std::size_t in_each = launch.in.size() / (computed.size() / size) / 3;
  std::size_t unlike = 0;
  std::string examples;
  std::set<std::uint64_t> shown;
  for (std::size_t at = 0; at < computed.size(); at += each) {
    const std::uint64_t here = bits_at(computed, at, each);
    const std::uint64_t device = bits_at(*there, at, each);
    if (is_near(here, device, near))
      continue;
    ++unlike;
    // Examples of different inputs.
    const std::uint64_t input =
        in_each == 0 ? at : bits_at(launch.in, at / size * 3 * in_each, in_each);
    if (!shown.insert(input).second || shown.size() > 8)
      continue;
    examples +=
        fmt::format("\n  {}: {:#x}, on the device {:#x}; of", at / size, here, device);
    for (std::size_t i = 0; in_each != 0 && i < 3; ++i)
      examples += fmt::format(
          " {:#x}", bits_at(launch.in, (at / size * 3 + i) * in_each, in_each));
  }
  EXPECT_EQ(unlike, 0U) << "of " << computed.size() / each << ": " << text << examples;
}

}  // namespace kiln::ptx::test
