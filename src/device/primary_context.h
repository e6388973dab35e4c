// The primary context of a device, which all libraries of the process share: retained
// here, released with its last owner, never reset. context_scope.h makes it current for
// a thread.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "device/driver.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "util/fork_count.h"

struct CUctx_st;

namespace kiln::device {

/// The limits of one launch on a device, as the driver reports them.
struct LaunchLimits {
  std::array<std::uint32_t, 3> grid{};   // blocks in x, y, z
  std::array<std::uint32_t, 3> block{};  // threads in x, y, z
  std::uint32_t shared_bytes = 0;        // per block, static and dynamic; no opt-in
  std::uint32_t shared_optin_bytes = 0;  // per block, with opt-in; never less
  bool has_cooperative_launch = false;
};

/// Thread safety: immutable; share through std::shared_ptr. The last owner may be
/// destroyed on any thread, at process exit, and in a forked child (which then calls no
/// driver function).
class PrimaryContext {
 public:
  /// Retains the primary context of `device`, which came from `driver`. The first call
  /// in a process waits until the driver has created the context. Does not change the
  /// thread's current context. Errors: kDevice, naming the device.
  [[nodiscard]] static Result<std::shared_ptr<const PrimaryContext>> retain(
      const Driver& driver, Device device);

  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  [[nodiscard]] const Driver& driver() const { return driver_; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const LaunchLimits& limits() const { return limits_; }
  [[nodiscard]] CUctx_st* handle() const { return handle_; }

  /// False in a forked child: CUDA's handles are invalid there.
  [[nodiscard]] bool is_of_this_process() const { return owner_.is_this(); }

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
