// The service: a kernel for a device, from memory, from disk, or built.
//
//   auto service = kiln::Service::open();
//   auto device  = service->device();
//   auto kernel  = service->get({"scaled_softmax_fwd", {{"dtype", "bf16"}}}, *device);

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/device.h"
#include "kiln/export.h"
#include "kiln/kernel.h"
#include "kiln/request.h"
#include "kiln/result.h"

namespace kiln {

/// What happened to one request on one device.
struct Event {
  enum class Kind : std::uint8_t {
    kHit,        // found on disk; or kept in memory, where it could not be stored
    kCompiled,   // built by this call
    kWaited,     // built or loaded by another process or thread meanwhile
    kNotStored,  // built, and usable, but not kept on disk; `error` says why
    kLoaded,     // on the device
    kFailed,     // `error` says why
  };
  Kind kind;
  std::string kernel;  // as Kernel::name()
  std::string key;     // 64 hex digits; "" where it failed before it had one
  int device = 0;      // its ordinal
  std::chrono::nanoseconds took{};  // since get() was called
  std::optional<Error> error{};
};

/// "hit", "compiled", "waited", "not_stored", "loaded", "failed". Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(Event::Kind kind);

/// Who computes attention: cuDNN where it can, else Kiln's own kernel; or one of the
/// two whatever comes.
enum class AttentionSetting : std::uint8_t { kBest, kCudnn, kKiln };

/// What beats the environment and the defaults; what is not set here leaves them alone.
/// Each says what the variable beside it says.
struct Options {
  std::optional<std::filesystem::path> cache_dir{};            // KILN_CACHE_DIR
  std::optional<std::uint64_t> cache_limit_bytes{};            // KILN_CACHE_SIZE
  std::optional<std::chrono::milliseconds> compile_timeout{};  // KILN_COMPILE_TIMEOUT
  std::optional<std::uint64_t> worker_memory_bytes{};          // KILN_WORKER_MEMORY
  std::optional<unsigned> jobs{};                              // KILN_JOBS
  std::optional<bool> no_jit{};                                // KILN_NO_JIT
  std::optional<std::filesystem::path> nvrtc{};                // KILN_NVRTC
  std::optional<std::filesystem::path> cudnn{};                // KILN_CUDNN
  std::optional<std::filesystem::path> driver{};               // KILN_DRIVER
  std::optional<std::filesystem::path> worker{};               // KILN_WORKER
  std::optional<std::string> toolchain{};                      // KILN_TOOLCHAIN
  std::optional<AttentionSetting> attention{};                 // KILN_ATTENTION
  std::optional<std::vector<std::filesystem::path>>
      template_dirs{};                            // KILN_TEMPLATE_DIR
  std::optional<std::filesystem::path> record{};  // KILN_RECORD
  /// Kernels that are refused: "rope_fwd", "scaled_*".
  std::optional<std::vector<std::string>> disable{};  // KILN_DISABLE
  /// Users whose objects are used, too, beside this one and root.
  std::optional<std::vector<std::uint32_t>> trusted_uids{};  // KILN_TRUSTED_UIDS
  /// "trace", "debug", "info", "warning", "error" or "off". Of the whole process.
  std::optional<std::string> log_level{};  // KILN_LOG
  /// Called for each event but hits in memory, by the thread that caused it, and by
  /// several at once. It must not call the service. What it throws is logged.
  std::function<void(const Event&)> on_event{};
};

/// Counts since the service was opened.
struct Statistics {
  std::uint64_t memory_hits = 0;  // loaded before
  std::uint64_t disk_hits = 0;
  std::uint64_t compiled = 0;
  std::uint64_t waited = 0;
  std::uint64_t not_stored = 0;  // of those compiled
  std::uint64_t loaded = 0;      // modules, over all devices
  std::uint64_t failed = 0;
  friend bool operator==(const Statistics&, const Statistics&) = default;
};

/// Kernels on demand. Kernels stay loaded until the service and every copy of them are
/// gone; they may outlive it. (One that was built from a header which no key could name
/// stays as long as its Request, and answers no other.) No exception leaves any of its
/// functions. One that was moved from can be assigned to and destroyed, nothing else.
/// Thread safety: every method may run concurrently, but for moving and destruction. A
/// forked child must not use one whose parent had devices: it gets an error.
class KILN_EXPORT Service {
 public:
  /// Reads the environment, opens the cache (where that cannot be, kernels are kept in
  /// memory alone, with a warning) and asks the driver for its devices. Looks for no
  /// NVRTC and starts no process. Errors: kInvalidArgument (a setting or a template
  /// folder), kIo (KILN_RECORD), kUnavailable, kDevice (a driver that is there and does
  /// not work).
  [[nodiscard]] static Result<Service> open(const Options& options = {});

  Service(Service&& other) noexcept;
  Service& operator=(Service&& other) noexcept;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  /// Ends prefetches and the builds they run, within a second or so; a driver that is
  /// busy loading one is waited for. No other thread may be in a call any more.
  ~Service();

  /// In CUDA's order; empty on a machine without a driver or without devices.
  [[nodiscard]] const std::vector<Device>& devices() const;

  /// The device of that ordinal. Errors: kUnavailable (no driver, no device, a forked
  /// child), kInvalidArgument (no device of that number).
  [[nodiscard]] Result<Device> device(int ordinal = 0) const;

  /// The device that `stream` is of, one of devices(). A null stream, or CUDA's legacy
  /// and per-thread ones, are of the context that is current to the thread; where none
  /// is, of the only device. Works while `stream` is captured. Errors: kInvalidArgument
  /// (no context is current, and there are several devices), kUnavailable (no driver, a
  /// forked child), kDevice.
  [[nodiscard]] Result<Device> device_of(CUstream_st* stream) const;

  /// The kernel, loaded on `device`, one of devices(). From memory without waiting for
  /// any build or load; else from disk or built, and loaded, once for all who ask
  /// meanwhile. Blocks; every wait in it has a deadline, and `stop` ends a wait for a
  /// build and the build itself. A fault of the cache is never an error.
  ///
  /// Errors: kInvalidArgument, kNotFound (the request; a device that is not this
  /// service's); kCompileFailed with NVRTC's log; kTimeout, kResourceLimit,
  /// kWorkerCrashed; kUnavailable (no NVRTC for this device, a driver that is too old,
  /// a miss with KILN_NO_JIT, a kernel that Options::disable names, a forked child);
  /// kIo (a header); kCorrupt (the compiler's output); kCancelled; kDevice. A failure
  /// is not remembered.
  [[nodiscard]] Result<Kernel> get(const Request& request, const Device& device,
                                   const std::stop_token& stop = {});

  /// Starts get() in the background and returns: a later get() finds the kernel or
  /// waits for the same build. What it fails with is an event and is told by get().
  /// Errors: kInvalidArgument, kNotFound (the request, the device); kUnavailable (no
  /// thread left, no driver, a forked child, a kernel that Options::disable names).
  [[nodiscard]] Result<void> prefetch(const Request& request, const Device& device);

  [[nodiscard]] Statistics statistics() const;

  /// The device as JSON with cuDNN's 23 device-property keys: what `--profile FILE`
  /// reads where the device is not present. Errors: kInvalidArgument, kDevice.
  [[nodiscard]] Result<std::string> profile(const Device& device) const;

 private:
  friend struct ServiceParts;  // the library's own operations
  class KILN_HIDDEN Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null after a move
};

}  // namespace kiln
