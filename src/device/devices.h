// The devices of one service. They are listed once; each retains its primary context at
// its first use.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/architecture.h"
#include "device/driver.h"
#include "device/primary_context.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "util/mutex.h"

struct CUstream_st;

namespace kiln {

/// Thread safety: every method may run concurrently; a slow device blocks only the
/// callers that use it.
class Devices {
 public:
  /// `driver` is nullopt on a machine without one: no devices. Errors: kDevice.
  [[nodiscard]] static Result<std::unique_ptr<Devices>> open(
      const std::optional<device::Driver>& driver);

  [[nodiscard]] const std::vector<Device>& list() const { return list_; }

  /// Whether `device` is in list(); false for a device of another driver.
  [[nodiscard]] bool has(const Device& device) const;

  /// False in a child process forked after open().
  [[nodiscard]] bool is_of_this_process() const;

  /// Checks that this process may use devices. Errors: kUnavailable (a child process
  /// forked after open()).
  [[nodiscard]] Result<void> check_process() const;

  /// Checks that this process can use `device`. Errors: kInvalidArgument (not in
  /// list()), kUnavailable (no driver; as check_process()).
  [[nodiscard]] Result<void> check(const Device& device) const;

  /// The device of `stream`. A default stream belongs to the thread's current context;
  /// if none is current, to the only device. Errors: kUnavailable (no driver; as
  /// check_process()), kInvalidArgument (several devices and no context), kDevice.
  [[nodiscard]] Result<Device> device_of(CUstream_st* stream) const;
  /// See Service::device().
  [[nodiscard]] Result<Device> find(int ordinal) const;

  /// Whether `stream` is being captured. Errors: kUnavailable (no driver); kDevice.
  [[nodiscard]] Result<bool> is_capturing(CUstream_st* stream) const;

  /// Checks that the driver, if there is one, accepts such images of that toolkit.
  /// Errors: kUnavailable, with the driver that would.
  [[nodiscard]] Result<void> check_driver(device::ImageKind kind,
                                          device::CudaVersion toolkit) const;

  /// Retained at the first call for a device, until its last owner is gone.
  /// Errors: as check(); kDevice.
  [[nodiscard]] Result<std::shared_ptr<const device::PrimaryContext>> context(
      const Device& device);

  /// The same, valid as long as this object. Once the context is retained, takes no
  /// lock and changes no reference count.
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
  const std::uint64_t forks_;  // fork_count() at open()
  std::vector<Slot> slots_;    // one per device
};

}  // namespace kiln
