// A compiled image in the primary context of one device. Whatever can be refused is
// refused here, none of it at a launch.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/architecture.h"
#include "device/cuda_version.h"
#include "device/function.h"
#include "device/primary_context.h"
#include "kiln/result.h"
#include "util/bytes.h"

struct CUmod_st;

namespace kiln::device {

struct EntryPoint;

/// What is to be loaded.
struct Image {
  ByteView bytes;       // whole; PTX with or without its closing NUL
  Target target;        // what it was built for
  CudaVersion toolkit;  // what it was built by
  std::string label;    // what people call it: a template's or a file's name
  std::string key;      // hex; errors show its first 12 digits
  std::vector<std::string> entry_points;  // lowered names; none: all that are in it
};

/// Thread safety: immutable; share through std::shared_ptr. It owns its context and its
/// functions. The last owner may go on any thread, in a process forked since (which
/// calls no driver then) and while the process ends.
class LoadedModule {
 public:
  /// The image in that context, and every entry point resolved, lazy loading or not.
  /// What is current to the thread stays so, and a capture that is under way stays
  /// whole. `image` is not needed any longer afterwards. Errors name device, kernel and
  /// key, and before the driver sees the image: kInvalidArgument (it does not run on
  /// that device), kUnavailable (the driver is too old), kCorrupt (it is not what it is
  /// said to be). Then kCorrupt (an entry point that the driver does not find), kDevice
  /// (with the driver's compiler's words for PTX).
  [[nodiscard]] static Result<std::shared_ptr<const LoadedModule>> load(
      const std::shared_ptr<const PrimaryContext>& context, const Image& image);

  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;
  LoadedModule(LoadedModule&&) = delete;
  LoadedModule& operator=(LoadedModule&&) = delete;
  ~LoadedModule();

  [[nodiscard]] const PrimaryContext& context() const { return *context_; }
  [[nodiscard]] CUmod_st* handle() const { return handle_; }

  /// In the image's order of entry points, or the driver's where it gave none.
  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }
  /// Null where there is none of that lowered name.
  [[nodiscard]] const Function* find(std::string_view name) const;

  /// "scaled_softmax_fwd (key 0123456789ab) on device 0 (NVIDIA H100)", for errors.
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  LoadedModule(std::shared_ptr<const PrimaryContext> context, std::string label);
  Result<void> resolve(const std::vector<std::string>& wanted,
                       std::vector<EntryPoint> told);

  const std::shared_ptr<const PrimaryContext> context_;
  const std::string label_;
  // Constant once load() has returned.
  CUmod_st* handle_ = nullptr;
  std::vector<Function> functions_;
};

}  // namespace kiln::device
