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

// Types of the CUDA driver API, so that this header needs no CUDA header.
struct CUfunc_st;
struct CUstream_st;

namespace kiln {

class LoadedKernel;

/// Resources that a kernel uses, as the driver reports them.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // per thread
  std::uint64_t local_bytes = 0;               // per thread: stack and spills
  std::uint64_t constant_bytes = 0;            // user constant memory
  std::uint32_t static_shared_bytes = 0;       // per block
  std::uint32_t max_dynamic_shared_bytes = 0;  // per block, on top of static
  std::uint32_t max_threads_per_block = 0;     // of this kernel on this device
  friend bool operator==(const KernelAttributes&, const KernelAttributes&) = default;
};

/// A `__device__` or `__constant__` variable of a module, on the module's device.
struct GlobalVariable {
  std::uint64_t address = 0;  // a CUdeviceptr; valid as long as a copy of the kernel
  std::uint64_t bytes = 0;
  friend bool operator==(const GlobalVariable&, const GlobalVariable&) = default;
};

/// What an argument or a parameter of a kernel is.
enum class ArgumentKind : std::uint8_t {
  kAny,      // not known, or a struct
  kInteger,  // a whole number, bool, enum; of a parameter also an address
  kFloat,    // float, double
};

/// That of a C++ type. A pointer is kAny: it is what its parameter is.
template <typename T>
constexpr ArgumentKind argument_kind() {
  if (std::is_floating_point_v<T>)
    return ArgumentKind::kFloat;
  return std::is_integral_v<T> || std::is_enum_v<T> ? ArgumentKind::kInteger
                                                    : ArgumentKind::kAny;
}

/// A kernel, loaded on its device. Copies are cheap and share the loaded module; a
/// kernel may outlive its service. The module is unloaded once the service and the last
/// copy are gone. That does not wait for the device: keep the service or a copy until
/// the last launch has finished, and as long as a graph that captured a launch may run.
/// Only assign to or destroy a moved-from Kernel. Thread safety: any number of threads
/// may use one Kernel and its copies.
class KILN_EXPORT Kernel {
 public:
  /// The template with its parameters, "scaled_softmax_fwd:dtype=bf16,max_cols=any";
  /// for a source, the file name in the request that loaded it first.
  [[nodiscard]] const std::string& name() const;
  /// The cache key: 64 hex digits, which `kiln show` accepts.
  [[nodiscard]] const std::string& key() const;
  [[nodiscard]] const Device& device() const;

  /// The lowered names of the module's kernels: "_Z5scaleIfEvPT_f".
  [[nodiscard]] std::vector<std::string> entry_points() const;
  /// The lowered name of the kernel that launch() starts; "" if the module of a source
  /// has several and entry() selected none.
  [[nodiscard]] const std::string& entry_point() const;
  /// Another kernel of the same module, by name expression or lowered name. Errors:
  /// kNotFound; the message lists the kernels of the module.
  [[nodiscard]] Result<Kernel> entry(std::string_view name) const;

  /// A variable of the module, by name expression ("&ns::table", or "ns::table") or by
  /// lowered name, which outside of namespaces is the plain name. A name expression
  /// keeps a variable that no kernel uses. Errors: kNotFound; kDevice.
  [[nodiscard]] Result<GlobalVariable> global(std::string_view name) const;

  /// Errors: kInvalidArgument if entry_point() is "".
  [[nodiscard]] Result<KernelAttributes> attributes() const;

  /// The size in bytes of each parameter, in order. Errors: kInvalidArgument if
  /// entry_point() is ""; kUnavailable if nothing tells them, as for PTX with a driver
  /// before CUDA 12.4.
  [[nodiscard]] Result<std::vector<std::size_t>> parameter_sizes() const;

  /// Of each parameter, in order. What tells them is the mangled name, for an
  /// extern "C" kernel its PTX. Errors: as parameter_sizes().
  [[nodiscard]] Result<std::vector<ArgumentKind>> parameter_kinds() const;

  /// The geometry that the template declares for `arguments`. Errors: kInvalidArgument
  /// (an argument is missing, unknown or negative; the arguments break a requirement of
  /// the template; the kernel comes from a source, which declares no geometry).
  [[nodiscard]] Result<Geometry> geometry(const LaunchArguments& arguments) const;

  /// Launches the kernel in `stream`; asynchronous. `arguments` are the kernel's own,
  /// in order, each of exactly its parameter's size: `float`, not `double`, and not
  /// `int`; a device address as a pointer or CUdeviceptr. They are copied before
  /// launch() returns. Works while `stream` is being captured. Opts in to more than 48
  /// KiB of shared memory, or to clusters of more than 8 blocks, if the geometry asks
  /// for that.
  ///
  /// `stream` is a CUstream or cudaStream_t of the primary context of device(). Null is
  /// the legacy default stream, even if the program is compiled with
  /// `--default-stream per-thread`; CU_STREAM_PER_THREAD is the other default stream.
  /// Before a launch in a default stream, the thread's current context must be the
  /// primary context of device(), or none.
  ///
  /// An empty grid launches nothing. Overhead beside cuLaunchKernel: some tens of
  /// nanoseconds and one query of the stream's context. Drivers before CUDA 12.4 do not
  /// report the parameters of PTX; its arguments are then not checked.
  ///
  /// Errors before the launch: kInvalidArgument (entry_point() is ""; a wrong number or
  /// size of arguments; a whole number for a floating-point parameter, or the reverse;
  /// a geometry beyond a limit of the kernel or the device; a stream of another
  /// context), kUnavailable (a cluster or a cooperative launch with a driver before
  /// CUDA 11.8). Error of the launch: kDevice, which may be that of an earlier kernel,
  /// since kernels run asynchronously.
  template <typename... Arguments>
  [[nodiscard]] Result<void> launch(const Geometry& geometry, CUstream_st* stream,
                                    Arguments... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...),
                  "a kernel's arguments are copied byte by byte");
    const std::array<void*, sizeof...(Arguments)> values{
        const_cast<void*>(static_cast<const void*>(&arguments))...};
    constexpr std::array<std::size_t, sizeof...(Arguments)> kSizes{
        sizeof(Arguments)...};
    constexpr std::array<ArgumentKind, sizeof...(Arguments)> kKinds{
        argument_kind<Arguments>()...};
    return launch_typed(geometry, stream, values, kSizes, kKinds);
  }

  /// The same, with what geometry() returned: if that is an error, returns it.
  template <typename... Arguments>
  [[nodiscard]] Result<void> launch(const Result<Geometry>& geometry,
                                    CUstream_st* stream, Arguments... arguments) const {
    if (!geometry)
      return tl::unexpected<Error>(geometry.error());
    return launch(*geometry, stream, arguments...);
  }

  /// As launch(), for arguments whose number and types are known only at run time: the
  /// host address, which must not be null, and the size of each. Copies the arguments
  /// before it returns.
  [[nodiscard]] Result<void> launch_with(
      const Geometry& geometry, CUstream_st* stream, std::span<void* const> arguments,
      std::span<const std::size_t> sizes_bytes) const;

  /// The same, with the kind of each argument; kAny is not checked. The first launch of
  /// an extern "C" kernel reads its PTX for that. Errors: kInvalidArgument, also for
  /// other kinds than the parameters have.
  [[nodiscard]] Result<void> launch_typed(const Geometry& geometry, CUstream_st* stream,
                                          std::span<void* const> arguments,
                                          std::span<const std::size_t> sizes_bytes,
                                          std::span<const ArgumentKind> kinds) const;

  /// The loaded cubin or PTX, for other loaders. Valid as long as a copy of this
  /// kernel.
  [[nodiscard]] std::span<const std::byte> image() const;

  /// The CUfunction, for driver calls such as occupancy and graph nodes. Null if
  /// entry_point() is "". Valid as long as a copy of this kernel.
  [[nodiscard]] CUfunc_st* function() const;

 private:
  friend class LoadedKernel;
  static constexpr std::size_t kNoEntry = static_cast<std::size_t>(-1);

  Kernel(std::shared_ptr<const LoadedKernel> loaded, std::size_t entry);

  std::shared_ptr<const LoadedKernel> loaded_;  // never null
  std::size_t entry_;                           // kNoEntry: none was chosen
};

}  // namespace kiln
