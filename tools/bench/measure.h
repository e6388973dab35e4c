// Times an operation on one device and, if it is memory-bound, a copy of as many bytes.

#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "device/driver.h"
#include "kiln/device.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "tools/bench/cases.h"
#include "tools/bench/gpu.h"

namespace kiln::tools {

/// Medians, in milliseconds; 0 on a simulated device.
struct BenchTime {
  float operation_ms = 0;
  float copy_ms = 0;  // for BytesMoved only
};

/// Thread safety: none; it belongs to the thread that opened it.
class Bench {
 public:
  /// Builds the kernels that copy and fill. Errors: those of Gpu::open() and
  /// Service::get().
  [[nodiscard]] static Result<std::unique_ptr<Bench>> open(Service& service,
                                                           const device::Driver& driver,
                                                           const Device& device);

  /// Call before measure(): runs BenchCase::prepare. If there is a reason, leave the
  /// case out. Errors: as BenchCase::prepare.
  [[nodiscard]] Result<std::optional<BenchRefusal>> prepare(BenchCase& which);

  /// Runs the operation `rounds` times after three warm-up rounds; for BytesMoved,
  /// alternately with a copy. Each run is queued behind copies that keep the device
  /// busy, so that the host's time is not measured. Errors: kResourceLimit (more memory
  /// than is free); kUnavailable (the host is too slow, or waits for each launch);
  /// those of the operation.
  [[nodiscard]] Result<BenchTime> measure(const BenchCase& which, int rounds);

 private:
  Bench(Service& service, std::unique_ptr<Gpu> gpu, Kernel copy, Kernel fill);
  [[nodiscard]] Result<void> check_memory(const BenchCase& which) const;
  [[nodiscard]] Result<GpuMemory> make(const BenchTensor& tensor) const;
  /// Times what `start` puts into the stream. `copies_ahead` grows until the device is
  /// still busy with the copies when everything is queued.
  using Start = std::function<Result<void>()>;
  [[nodiscard]] Result<float> time(const Start& start, const Start& copy,
                                   int& copies_ahead);

  Service& service_;
  const std::unique_ptr<Gpu> gpu_;
  const Kernel copy_;
  const Kernel fill_;
};

}  // namespace kiln::tools
