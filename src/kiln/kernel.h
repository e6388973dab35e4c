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

/// What a kernel takes of its device, as the driver says.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // a thread
  std::uint64_t local_bytes = 0;               // a thread: stack, and what was spilled
  std::uint64_t constant_bytes = 0;            // of the kernel's own
  std::uint32_t static_shared_bytes = 0;       // a block
  std::uint32_t max_dynamic_shared_bytes = 0;  // a block; beyond the static ones
  std::uint32_t max_threads_per_block = 0;     // of this kernel on this device
  friend bool operator==(const KernelAttributes&, const KernelAttributes&) = default;
};

/// A kernel on its device. A copy is cheap and shares the module, which owns its
/// context: a kernel may outlive the service that it came from. The last copy unloads
/// it, and does not wait for the device: a copy has to live until its last launch has
/// run, and until no graph that captured one will be launched again. One that was moved
/// from can be assigned to and destroyed, nothing else.
/// Thread safety: any number of threads may use one, and copies of one.
class KILN_EXPORT Kernel {
 public:
  /// "scaled_softmax_fwd:dtype=bf16,max_cols=any", or the file name of a source: of the
  /// one that it was first loaded for.
  [[nodiscard]] const std::string& name() const;
  /// 64 hex digits: what `kiln show` takes.
  [[nodiscard]] const std::string& key() const;
  [[nodiscard]] const Device& device() const;

  /// Lowered names ("_Z5scaleIfEvPT_f"), as they are in the module.
  [[nodiscard]] std::vector<std::string> entry_points() const;
  /// The one that is launched; "" where there are several and none was chosen.
  [[nodiscard]] const std::string& entry_point() const;
  /// Another kernel of the same module: by the name expression it was asked for with,
  /// or by its lowered name. Errors: kNotFound, with those that there are.
  [[nodiscard]] Result<Kernel> entry(std::string_view name) const;

  /// Errors: kInvalidArgument where none was chosen of several entry points.
  [[nodiscard]] Result<KernelAttributes> attributes() const;

  /// Grid, block and dynamic shared memory for `arguments`, as the template declares.
  /// Errors: kInvalidArgument for an argument that is missing, unknown or negative, a
  /// requirement that is broken, and for a source, which declares none.
  [[nodiscard]] Result<Geometry> geometry(const LaunchArguments& arguments) const;

  /// Starts the kernel in `stream` and returns. `arguments` are the kernel's own, in
  /// order, each of exactly its parameter's size: `float`, not `double`; a device
  /// address as a pointer or CUdeviceptr. Works while `stream` is captured.
  ///
  /// A stream belongs to the context it was made in, which has to be the primary one of
  /// this kernel's device; the null stream and the per-thread one mean the context
  /// current to this thread, or this kernel's where none is. An empty grid starts
  /// nothing. Cost over cuLaunchKernel: some tens of nanoseconds and the driver's
  /// answer to whose stream it is. Of PTX, drivers before CUDA 12.4 do not tell the
  /// parameters: then arguments are not checked.
  ///
  /// Errors, before the driver sees a launch: kInvalidArgument for a wrong number or
  /// size of arguments, a geometry beyond the kernel's or the device's limits, a stream
  /// of another context. Else kDevice, with what the driver said, which may be of an
  /// earlier launch: kernels run on after this returns.
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

  /// As above; what geometry() failed with is handed on.
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

  /// For the driver's own functions (occupancy, graph nodes); null where none was
  /// chosen of several entry points. Valid as long as a copy of this kernel.
  [[nodiscard]] CUfunc_st* function() const;

 private:
  friend class LoadedKernel;
  static constexpr std::size_t kNoEntry = static_cast<std::size_t>(-1);

  Kernel(std::shared_ptr<const LoadedKernel> loaded, std::size_t entry);

  std::shared_ptr<const LoadedKernel> loaded_;  // never null
  std::size_t entry_;                           // kNoEntry: none was chosen
};

}  // namespace kiln
