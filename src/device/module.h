// A compiled image, loaded into the primary context of a device. Everything that can be
// checked is checked when it is loaded, nothing of it at a launch.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "device/function.h"
#include "device/primary_context.h"
#include "kiln/result.h"
#include "util/bytes.h"

struct CUfunc_st;
struct CUmod_st;

namespace kiln::device {

struct EntryPoint;

/// An image to load.
struct Image {
  ByteView bytes;       // complete; PTX with or without its final NUL
  Target target;        // what it was built for
  CudaVersion toolkit;  // what it was built by
  std::string label;    // for error messages: the name of a template or file
  std::string key;      // hex; errors show its first 12 digits
  std::vector<std::string> entry_points;  // lowered names; empty: all in the image
};

/// A `__device__` or `__constant__` variable of a loaded module.
struct Variable {
  std::uint64_t address = 0;  // a CUdeviceptr
  std::size_t bytes = 0;
};

/// Says which kernels of local binding cannot be had, why, and the remedy.
[[nodiscard]] std::string why_unreachable(const std::vector<std::string>& kernels);

/// Thread safety: immutable; share through std::shared_ptr. Owns its context and its
/// functions. The last owner may be destroyed on any thread, at process exit, and in a
/// forked child (which then calls no driver function).
class LoadedModule {
 public:
  /// Loads the image into that context and resolves every entry point, even if the
  /// driver loads lazily. Keeps the thread's current context, and does not break a
  /// capture in progress. `image` is not needed afterwards. Errors name device, kernel
  /// and key. Before the driver sees the image: kInvalidArgument (it does not run on
  /// that device), kUnavailable (the driver is too old), kCorrupt (it is not what
  /// `image` says). Then: kCorrupt (the driver does not find an entry point),
  /// kUnavailable (it finds none, and all are of local binding), kDevice (for PTX with
  /// the log of the driver's compiler).
  [[nodiscard]] static Result<std::shared_ptr<const LoadedModule>> load(
      const std::shared_ptr<const PrimaryContext>& context, const Image& image);

  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;
  ~LoadedModule();

  [[nodiscard]] const PrimaryContext& context() const { return *context_; }
  [[nodiscard]] CUmod_st* handle() const { return handle_; }

  /// In the order of Image::entry_points; if that was empty, in the order of the image.
  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }
  /// The lowered names of kernels of local binding that the driver does not find: a
  /// driver before CUDA 12.4 cannot list the kernels of a module.
  [[nodiscard]] const std::vector<std::string>& unreachable() const {
    return unreachable_;
  }
  /// The function of that lowered name, or null.
  [[nodiscard]] const Function* find(std::string_view name) const;

  /// The variable of that lowered name; nullopt: the driver finds none. Keeps the
  /// thread's current context, and does not break a capture. Errors: kDevice.
  [[nodiscard]] Result<std::optional<Variable>> variable(const std::string& name) const;

  /// "scaled_softmax_fwd (key 0123456789ab) on device 0 (NVIDIA H100)", for errors.
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  // The driver's handles by name, as it enumerates them; empty if it cannot.
  using Enumeration = std::map<std::string, CUfunc_st*, std::less<>>;

  LoadedModule(std::shared_ptr<const PrimaryContext> context, std::string label);
  static Result<Enumeration> enumerate(const LoadedModule& module);
  Result<void> resolve(const std::vector<std::string>& wanted,
                       std::vector<EntryPoint> in_image, const Enumeration& enumerated);

  const std::shared_ptr<const PrimaryContext> context_;
  const std::string label_;
  // Constant once load() has returned.
  CUmod_st* handle_ = nullptr;
  std::vector<Function> functions_;
  std::vector<std::string> unreachable_;
};

}  // namespace kiln::device
