// A device as a benchmark uses it in addition to Kiln: memory, a stream, and timing
// events.

#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "device/driver.h"
#include "device/primary_context.h"
#include "kiln/device.h"
#include "kiln/result.h"

namespace kiln::tools {

// Driver functions that Kiln itself does not use, and that every driver exports.
#define KILN_BENCH_DRIVER_FUNCTIONS(X) \
  X(cuMemAlloc)                        \
  X(cuMemFree)                         \
  X(cuMemcpyHtoD)                      \
  X(cuMemGetInfo)                      \
  X(cuStreamCreate)                    \
  X(cuStreamDestroy)                   \
  X(cuStreamSynchronize)               \
  X(cuEventCreate)                     \
  X(cuEventDestroy)                    \
  X(cuEventRecord)                     \
  X(cuEventSynchronize)                \
  X(cuEventQuery)                      \
  X(cuEventElapsedTime)

struct GpuCalls {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define KILN_GPU_CALL(function) decltype(&::function) function = nullptr;
  KILN_BENCH_DRIVER_FUNCTIONS(KILN_GPU_CALL)
#undef KILN_GPU_CALL
  /// The tests' simulated driver, which computes nothing: no times are reported.
  bool is_simulated = false;
};

/// Memory of a device, which frees itself; must not outlive its Gpu.
using GpuMemory = std::unique_ptr<void, std::function<void(void*)>>;

/// A device with its primary context current to the thread that opened it, and one
/// stream. Thread safety: none; it belongs to that thread.
class Gpu {
 public:
  /// Errors: kDevice; kUnavailable (a driver that lacks a function).
  [[nodiscard]] static Result<std::unique_ptr<Gpu>> open(const device::Driver& driver,
                                                         const Device& device);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  [[nodiscard]] CUstream stream() const { return stream_; }
  [[nodiscard]] Result<std::uint64_t> free_memory_bytes() const;
  /// Errors: kDevice.
  [[nodiscard]] Result<GpuMemory> allocate(std::uint64_t bytes) const;
  /// Synchronous. Errors: kDevice.
  [[nodiscard]] Result<void> upload(void* to, std::span<const std::byte> bytes) const;

  /// Waits until all work in the stream has ended without error. Errors: kDevice.
  [[nodiscard]] Result<void> finish() const;

  /// Records an event in the stream. Errors: kDevice.
  [[nodiscard]] Result<void> mark_begin() const { return mark(begin_); }
  [[nodiscard]] Result<void> mark_end() const { return mark(end_); }
  /// True if the device has reached the last begin event; false on a simulated device,
  /// which takes no time for anything. Errors: kDevice.
  [[nodiscard]] Result<bool> has_begun() const;
  /// Waits for the last end event; returns the time since the last begin event, 0 on a
  /// simulated device. Errors: kDevice.
  [[nodiscard]] Result<float> elapsed_ms() const;

 private:
  Gpu(const device::Driver& driver, GpuCalls calls,
      std::shared_ptr<const device::PrimaryContext> context);
  [[nodiscard]] Result<void> begin();
  [[nodiscard]] Result<void> mark(CUevent event) const;
  [[nodiscard]] Result<void> check(CUresult result, std::string_view call) const;

  const device::Driver driver_;
  const GpuCalls calls_;
  const std::shared_ptr<const device::PrimaryContext> context_;
  bool is_pushed_ = false;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

}  // namespace kiln::tools
