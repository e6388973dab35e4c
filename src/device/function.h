// One kernel of a loaded module: its handle, parameters and resource needs.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "device/kernel_info.h"
#include "kiln/result.h"

struct CUfunc_st;

namespace kiln::device {

class LoadedModule;

/// As the driver reports them for the code that runs on this device.
struct FunctionAttributes {
  std::uint32_t registers = 0;            // per thread
  std::uint32_t local_bytes = 0;          // per thread
  std::uint32_t constant_bytes = 0;       // of the kernel itself
  std::uint32_t static_shared_bytes = 0;  // per block
  std::uint32_t max_dynamic_shared_bytes =
      0;                                    // per block; the device's limit less static
  std::uint32_t max_threads_per_block = 0;  // by its registers and launch bounds
};

/// Belongs to its module and lives as long. Thread safety: every method may run
/// concurrently.
class Function {
 public:
  /// Reads everything from the driver, which also loads a kernel that is loaded lazily.
  /// The module's context must be current. `parameters` come from the image; if it has
  /// none, the driver is asked. `enumerated` is the driver's handle for that name from
  /// its enumeration of the module, used if it does not find the kernel by name; null:
  /// none. Errors: kDevice; kCorrupt (no such kernel).
  [[nodiscard]] static Result<Function> resolve(const LoadedModule& module,
                                                std::string name,
                                                ParameterSizes parameters,
                                                CUfunc_st* enumerated = nullptr);
  Function(Function&& other) noexcept;  // for the module's vector, before it is shared
  Function& operator=(Function&&) = delete;
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  ~Function() = default;

  [[nodiscard]] const std::string& name() const { return name_; }  // lowered
  [[nodiscard]] const LoadedModule& module() const { return module_; }
  [[nodiscard]] CUfunc_st* handle() const { return handle_; }
  [[nodiscard]] const FunctionAttributes& attributes() const { return attributes_; }
  [[nodiscard]] const ParameterSizes& parameters() const { return parameters_; }

  /// Lets launches use attributes().max_dynamic_shared_bytes. Always sets that maximum,
  /// once, so threads that race for different sizes set the same value. The module's
  /// context must be current. Errors: kDevice.
  [[nodiscard]] Result<void> allow_large_shared_memory() const;

  /// Lets launches use clusters of more than 8 blocks; otherwise as above.
  [[nodiscard]] Result<void> allow_large_clusters() const;

 private:
  Function(const LoadedModule& module, std::string name, CUfunc_st* handle,
           ParameterSizes parameters);
  Result<void> allow(std::atomic<bool>& is_allowed, int attribute,
                     std::uint32_t value) const;

  // Constant once resolve() has returned.
  const LoadedModule& module_;
  std::string name_;
  CUfunc_st* handle_;
  ParameterSizes parameters_;
  FunctionAttributes attributes_;
  // Only ever set to true.
  mutable std::atomic<bool> has_large_shared_memory_ = false;
  mutable std::atomic<bool> has_large_clusters_ = false;
};

}  // namespace kiln::device
