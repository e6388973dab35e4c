// The devices of one service: listed once, each with its primary context from its first
// use on.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/driver.h"
#include "device/primary_context.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "util/mutex.h"

struct CUstream_st;

namespace kiln {

/// Thread safety: every method may run concurrently; a slow device makes only those
/// wait who ask for it.
class Devices {
 public:
  /// nullopt: a machine without a driver, which has no devices. Errors: kDevice.
  [[nodiscard]] static Result<std::unique_ptr<Devices>> open(
      const std::optional<device::Driver>& driver);

  [[nodiscard]] const std::vector<Device>& list() const { return list_; }

  /// Whether `device` is one of list(), and not one of another driver's.
  [[nodiscard]] bool has(const Device& device) const;

  /// False in a process forked since.
  [[nodiscard]] bool is_of_this_process() const;

  /// Whether this process may use devices. Errors: kUnavailable (it was forked since
  /// the driver was started).
  [[nodiscard]] Result<void> check_process() const;

  /// Whether `device` can be used by this process. Errors: kInvalidArgument (none of
  /// list()), kUnavailable (no driver; as check_process()).
  [[nodiscard]] Result<void> check(const Device& device) const;

  /// The device that `stream` is of. A default stream is one of the context current to
  /// the thread; where none is, of the only device. Errors: kUnavailable (no driver; as
  /// check_process()), kInvalidArgument (several devices and no context), kDevice.
  [[nodiscard]] Result<Device> device_of(CUstream_st* stream) const;
  /// See Service::device().
  [[nodiscard]] Result<Device> find(int ordinal) const;

  /// Whether `stream` is being captured. Errors: kUnavailable (no driver); kDevice.
  [[nodiscard]] Result<bool> is_capturing(CUstream_st* stream) const;

  /// Whether the driver takes images of that kind from that toolkit.
  /// Errors: kUnavailable, with what it would take.
  [[nodiscard]] Result<void> check_driver(device::ImageKind kind,
                                          device::CudaVersion toolkit) const;

  /// Retained at the first call for a device, until its last user has gone.
  /// Errors: as check(); kDevice.
  [[nodiscard]] Result<std::shared_ptr<const device::PrimaryContext>> context(
      const Device& device);

  /// The same, good as long as this object: no lock and no count is taken once it is
  /// retained.
  [[nodiscard]] Result<const device::PrimaryContext*> shared_context(
      const Device& device);

  /// Errors: as check(); kDevice.
  [[nodiscard]] Result<std::string> profile(const Device& device) const;

 private:
  struct Slot {
    Mutex mutex;
    std::shared_ptr<const device::PrimaryContext> context KILN_GUARDED_BY(mutex);
    std::atomic<const device::PrimaryContext*> retained = nullptr;  // it, or null
  };

  Devices(const std::optional<device::Driver>& driver, std::vector<Device> list);
  [[nodiscard]] Result<void> check_driver_there() const;

  // Constant after construction.
  const std::optional<device::Driver> driver_;
  const std::vector<Device> list_;
  const std::uint64_t forks_;  // before it was opened
  std::vector<Slot> slots_;    // one a device
};

}  // namespace kiln
