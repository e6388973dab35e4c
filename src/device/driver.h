// The CUDA driver: its version, its devices and their peer access; no module is loaded
// here. It is opened at run time; a machine without one is normal.
// driver_table.h has the functions themselves.

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda_version.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "util/library_search.h"

namespace kiln::device {

struct DriverTable;

inline constexpr std::string_view kDriverName = "libcuda.so.1";

/// A handle to a driver library. The library stays open until the process ends, so
/// copies are cheap and stay valid. Thread safety: every method may run concurrently.
class Driver {
 public:
  /// Opens the driver: `explicit_path` ("" for none), which the setting `set_by` names,
  /// or the first libcuda.so.1 that opens. nullopt: there is none, which is no error.
  /// Does not call cuInit. Opening one library twice gives the same table.
  /// Errors: kUnavailable, with the loader's message (a library was given or found, but
  /// none opens and has all required functions).
  [[nodiscard]] static Result<std::optional<Driver>> open(
      const std::filesystem::path& explicit_path, const LibraryPlaces& places,
      std::string_view set_by = "KILN_DRIVER");

  [[nodiscard]] const std::filesystem::path& path() const;
  [[nodiscard]] const std::string& found_in() const { return found_in_; }

  /// The newest CUDA that this driver supports.
  [[nodiscard]] CudaVersion version() const;

  /// Devices in CUDA's order; empty where the driver has none (also when
  /// CUDA_VISIBLE_DEVICES hides them all). Calls cuInit. Errors: kDevice.
  [[nodiscard]] Result<std::vector<Device>> devices() const;

  /// Whether `from` can map the memory of `to`. Errors: kDevice.
  [[nodiscard]] Result<bool> can_access_peer(int from, int to) const;

  [[nodiscard]] const DriverTable& table() const { return *table_; }

 private:
  Driver(const DriverTable* table, std::string found_in)
      : table_(table), found_in_(std::move(found_in)) {}

  const DriverTable* table_;  // never destroyed
  std::string found_in_;
};

}  // namespace kiln::device
