// The 23 device properties that cuDNN needs to build a plan: read from a driver or from
// a profile, and written as the JSON that cuDNN reads.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/driver.h"
#include "kiln/device.h"
#include "kiln/result.h"

namespace kiln::device {

/// Thread safety: a value.
struct DeviceProperties {
  std::array<std::int64_t, 3> max_grid_size{};
  std::array<std::int64_t, 3> max_block_size{};
  std::int64_t registers_per_block = 0;
  std::int64_t multiprocessors = 0;
  std::int64_t warp_size = 0;
  std::int64_t shared_bytes_per_block = 0;
  std::int64_t shared_bytes_per_block_optin = 0;
  std::int64_t reserved_shared_bytes_per_block = 0;
  std::int64_t registers_per_multiprocessor = 0;
  std::int64_t blocks_per_multiprocessor = 0;
  std::int64_t threads_per_block = 0;
  std::int64_t threads_per_multiprocessor = 0;
  std::int64_t pci_device_id = 0;
  std::int64_t is_tcc_driver = 0;  // 0 or 1; so is the next
  std::int64_t supports_cooperative_launch = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t clock_khz = 0;
  std::int64_t memory_clock_khz = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t ordinal = 0;
  std::int64_t device_version = 0;  // 100 * major + 10 * minor of the capability
  std::int64_t driver_version = 0;  // 1000 * major + 10 * minor, as the driver says it
  std::string name;

  [[nodiscard]] ComputeCapability capability() const;
  /// Exactly cuDNN's 23 keys, on one line. cuDNN takes 0 and 1 for the two flags, and
  /// refuses true and false.
  [[nodiscard]] std::string cudnn_json() const;
  /// The same for people: indented, with a final newline.
  [[nodiscard]] std::string indented_json() const;

  friend bool operator==(const DeviceProperties&, const DeviceProperties&) = default;
};

/// From deviceVer: 900 is 9.0. Errors: kInvalidArgument.
[[nodiscard]] Result<ComputeCapability> capability_of(std::int64_t device_version);

/// Requires all 23 keys and ignores others; true and false are 1 and 0. Errors:
/// kInvalidArgument, naming the key that is missing or of a wrong type or size.
[[nodiscard]] Result<DeviceProperties> parse_device_properties(std::string_view json);

/// The properties of a device that is present. Errors: kDevice, naming the call;
/// kInvalidArgument for an ordinal that does not exist.
[[nodiscard]] Result<DeviceProperties> device_properties(const Driver& driver,
                                                         int ordinal);

}  // namespace kiln::device
