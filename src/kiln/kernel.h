// A kernel that is loaded on one device, and its launch.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/geometry.h"
#include "kiln/result.h"

// The driver's own types, so that no CUDA header is needed here.
struct CUfunc_st;
struct CUstream_st;

namespace kiln {

class LoadedKernel;

/// Resources that a kernel uses, as the driver reports them.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // per thread
  std::uint64_t local_bytes = 0;               // per thread: stack and spills
  std::uint64_t constant_bytes = 0;            // the kernel's own
  std::uint32_t static_shared_bytes = 0;       // per block
  std::uint32_t max_dynamic_shared_bytes = 0;  // per block, beside the static ones
  std::uint32_t max_threads_per_block = 0;     // of this kernel on this device
  friend bool operator==(const KernelAttributes&, const KernelAttributes&) = default;
};

/// A kernel on its device. A copy is cheap and shares the loaded module: a kernel may
/// outlive the service that it came from. Destroying the last copy unloads the module
/// without waiting for the device: keep a copy until its last launch has run, and as
/// long as a graph that captured a launch may run. A moved-from Kernel can be assigned
/// to and destroyed, nothing else. Thread safety: any number of threads may use one,
/// and copies of one.
class KILN_EXPORT Kernel {
 public:
  /// "scaled_softmax_fwd:dtype=bf16,max_cols=any", or the file name of the source that
  /// it was first loaded for.
  [[nodiscard]] const std::string& name() const;
  /// 64 hex digits, as `kiln show` takes them.
  [[nodiscard]] const std::string& key() const;
  [[nodiscard]] const Device& device() const;

  /// The lowered names of the module's kernels: "_Z5scaleIfEvPT_f".
  [[nodiscard]] std::vector<std::string> entry_points() const;
  /// The kernel that launch() starts; "" where there are several and none was chosen.
  [[nodiscard]] const std::string& entry_point() const;
  /// Another kernel of the module, by name expression or by lowered name. Errors:
  /// kNotFound, with the names that there are.
  [[nodiscard]] Result<Kernel> entry(std::string_view name) const;

  /// Errors: kInvalidArgument where there are several kernels and none was chosen.
  [[nodiscard]] Result<KernelAttributes> attributes() const;

  /// Grid, block and dynamic shared memory for `arguments`, as the template declares
  /// them. Errors: kInvalidArgument (an argument that is missing, unknown or negative;
  /// a requirement of the template that they break; a source, which declares none).
  [[nodiscard]] Result<Geometry> geometry(const LaunchArguments& arguments) const;

  /// Starts the kernel in `stream` and returns. `arguments` are the kernel's own, in
  /// order, each of exactly its parameter's size: `float`, not `double`; a device
  /// address as a pointer or CUdeviceptr. Works while `stream` is captured.
  ///
  /// The stream must be of the primary context of this kernel's device. The null stream
  /// and the per-thread one are those of the context current to this thread, or of this
  /// kernel's where none is. An empty grid starts nothing. Costs some tens of
  /// nanoseconds more than cuLaunchKernel, and one question to the driver whose stream
  /// it is. Of PTX, drivers before CUDA 12.4 do not report parameters: then arguments
  /// are not checked.
  ///
  /// Errors, before anything is launched: kInvalidArgument (a wrong number or size of
  /// arguments, a geometry beyond the limits of the kernel or the device, a stream of
  /// another context). Else kDevice with the driver's error, which may be that of an
  /// earlier launch, since kernels run asynchronously.
  template <typename... Arguments>
  [[nodiscard]] Result<void> launch(const Geometry& geometry, CUstream_st* stream,
                                    Arguments... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...),
                  "a kernel's arguments are copied byte by byte");
    const std::array<void*, sizeof...(Arguments)> values{
        const_cast<void*>(static_cast<const void*>(&arguments))...};
    constexpr std::array<std::size_t, sizeof...(Arguments)> kSizes{
        sizeof(Arguments)...};
    return launch_with(geometry, stream, values, kSizes);
  }

  /// As above. Errors: also that of geometry(), which is passed on.
  template <typename... Arguments>
  [[nodiscard]] Result<void> launch(const Result<Geometry>& geometry,
                                    CUstream_st* stream, Arguments... arguments) const {
    if (!geometry)
      return tl::unexpected<Error>(geometry.error());
    return launch(*geometry, stream, arguments...);
  }

  /// As launch(), with arguments by address, for callers that know them at run time
  /// only. `sizes_bytes` has a size for each.
  [[nodiscard]] Result<void> launch_with(
      const Geometry& geometry, CUstream_st* stream, std::span<void* const> arguments,
      std::span<const std::size_t> sizes_bytes) const;

  /// The cubin or PTX that was loaded, for other loaders. Valid as long as a copy of
  /// this kernel.
  [[nodiscard]] std::span<const std::byte> image() const;

  /// For the driver's own functions (occupancy, graph nodes). Null where there are
  /// several kernels and none was chosen. Valid as long as a copy of this kernel.
  [[nodiscard]] CUfunc_st* function() const;

 private:
  friend class LoadedKernel;
  static constexpr std::size_t kNoEntry = static_cast<std::size_t>(-1);

  Kernel(std::shared_ptr<const LoadedKernel> loaded, std::size_t entry);

  std::shared_ptr<const LoadedKernel> loaded_;  // never null
  std::size_t entry_;                           // kNoEntry: none was chosen
};

}  // namespace kiln
