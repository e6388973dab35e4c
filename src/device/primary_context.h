// The primary context of a device, the one that every library of the process shares:
// retained here, released with its last owner, never reset. Making it current for a
// thread is context_scope.h.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/driver.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "util/fork_count.h"

struct CUctx_st;

namespace kiln::device {

/// What one launch on a device may ask for, as its driver tells it.
struct LaunchLimits {
  std::array<std::uint32_t, 3> grid{};   // blocks in x, y, z
  std::array<std::uint32_t, 3> block{};  // threads in x, y, z
  std::uint32_t shared_bytes = 0;        // a block, static and dynamic, without asking
  std::uint32_t shared_optin_bytes = 0;  // and with; never less
  bool has_cooperative_launch = false;
};

/// Thread safety: immutable; share through std::shared_ptr. The last owner may go on
/// any thread, in a process forked since (which calls no driver then) and while the
/// process ends.
class PrimaryContext {
 public:
  /// Retains the primary context of `device`, which came from `driver`; the first to do
  /// so in a process waits for the driver to make it. What is current to the thread
  /// stays so. Errors: kDevice, naming the device.
  [[nodiscard]] static Result<std::shared_ptr<const PrimaryContext>> retain(
      const Driver& driver, Device device);

  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  PrimaryContext(PrimaryContext&&) = delete;
  PrimaryContext& operator=(PrimaryContext&&) = delete;
  ~PrimaryContext();

  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const LaunchLimits& limits() const { return limits_; }
  [[nodiscard]] CUctx_st* handle() const { return handle_; }

  /// False in a process forked since: CUDA's handles mean nothing there.
  [[nodiscard]] bool is_of_this_process() const;

 private:
  PrimaryContext(Driver driver, Device device);

  // Constant once retain() has returned.
  const Driver driver_;
  const Device device_;
  const OwnerProcess owner_{};
  int cu_device_ = 0;
  CUctx_st* handle_ = nullptr;  // null: not retained
  LaunchLimits limits_;
};

/// "device 0 (NVIDIA H100 80GB HBM3)", for errors.
[[nodiscard]] std::string label_of(const Device& device);

}  // namespace kiln::device
