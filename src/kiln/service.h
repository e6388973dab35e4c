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

/// One event of a request for a kernel on a device.
struct Event {
  enum class Kind : std::uint8_t {
    kHit,        // found on disk; or in memory, if it could not be stored
    kCompiled,   // built by this call
    kWaited,     // another process or thread built or loaded it meanwhile
    kNotStored,  // built and usable, but not stored on disk; `error` says why
    kLoaded,     // loaded on the device
    kFailed,     // `error` says why
  };
  Kind kind;
  std::string kernel;  // as Kernel::name()
  std::string key;     // 64 hex digits; "" if it failed before the key was known
  int device = 0;      // the ordinal
  std::chrono::nanoseconds took{};  // since get() was called
  std::optional<Error> error{};
};

/// "hit", "compiled", "waited", "not_stored", "loaded", "failed". Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(Event::Kind kind);

/// The backend of attention. kBest: cuDNN if it can run the problem, else Kiln's own
/// kernel. kCudnn, kKiln: only that one; if it cannot run a problem, that is an error.
enum class AttentionSetting : std::uint8_t { kBest, kCudnn, kKiln };

/// Settings of a service. A field that is set overrides the default and the environment
/// variable named beside it.
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
  /// Templates that get() refuses, as names or shell patterns: "rope_fwd", "scaled_*".
  std::optional<std::vector<std::string>> disable{};  // KILN_DISABLE
  /// User ids whose cache objects are trusted, besides this user's and root's.
  std::optional<std::vector<std::uint32_t>> trusted_uids{};  // KILN_TRUSTED_UIDS
  /// "trace", "debug", "info", "warning", "error" or "off". For the whole process.
  std::optional<std::string> log_level{};  // KILN_LOG
  /// Called for each event on the thread that caused it; several threads may call it at
  /// once. It must not call the service. A hit in memory is no event. Exceptions from
  /// it are logged, not passed on.
  std::function<void(const Event&)> on_event{};
};

/// Counts of a service since it was opened.
struct Statistics {
  std::uint64_t memory_hits = 0;  // already loaded
  std::uint64_t disk_hits = 0;
  std::uint64_t compiled = 0;
  std::uint64_t waited = 0;
  std::uint64_t not_stored = 0;  // part of `compiled`
  std::uint64_t loaded = 0;      // modules, on all devices
  std::uint64_t failed = 0;
  friend bool operator==(const Statistics&, const Statistics&) = default;
};

/// Compiles, finds and loads kernels. A kernel stays loaded until the service and all
/// copies of the kernel are gone. (If a build read a header that its key does not
/// cover, only that Request and its copies get the kernel, and keep it loaded.) No
/// function throws. Only assign to or destroy a moved-from Service. In a forked child,
/// only devices(), statistics() and destruction work; the rest returns kUnavailable.
/// Thread safety: any number of threads may call any method, except while the service
/// is moved or destroyed.
class KILN_EXPORT Service {
 public:
  /// Reads the environment, opens the cache and lists the devices of the driver. If the
  /// cache cannot be opened, logs a warning and keeps kernels in memory only. Does not
  /// wait for NVRTC. No driver is no error. Errors: kInvalidArgument (a setting or a
  /// template folder), kIo (the file of KILN_RECORD), kUnavailable (a driver library
  /// that cannot be loaded), kDevice (a driver that fails).
  [[nodiscard]] static Result<Service> open(const Options& options = {});

  Service(Service&& other) noexcept;
  Service& operator=(Service&& other) noexcept;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  /// Cancels prefetches and their builds, within about a second; if the driver is
  /// loading a prefetched kernel, waits for it. No other thread may be in a call.
  ~Service();

  /// By ordinal; empty without a driver or devices. Valid as long as the service.
  [[nodiscard]] const std::vector<Device>& devices() const;

  /// The device with that ordinal. Errors: kUnavailable (no driver, no devices, a
  /// forked child), kInvalidArgument (no device has that ordinal).
  [[nodiscard]] Result<Device> device(int ordinal = 0) const;

  /// The device of `stream`. The default streams (null, legacy, per-thread) belong to
  /// the thread's current context; if none is current, to the only device. Works while
  /// `stream` is being captured. Errors: kInvalidArgument (a default stream, no current
  /// context and not exactly one device; a device that is not in devices()),
  /// kUnavailable (no driver, a forked child), kDevice.
  [[nodiscard]] Result<Device> device_of(CUstream_st* stream) const;

  /// Returns the kernel, loaded on `device`, one of devices(). A kernel in memory is
  /// returned without waiting for any build or load; else it is found on disk or built,
  /// and loaded, once for all threads that ask meanwhile. Blocks; every wait has a
  /// deadline. `stop` cancels a wait for a build, and a build that this call runs. A
  /// fault of the cache is never an error.
  ///
  /// Errors: kInvalidArgument, kNotFound (the request, the device); kCompileFailed with
  /// NVRTC's log; kTimeout, kResourceLimit, kWorkerCrashed; kUnavailable (no NVRTC for
  /// this device, a driver that is too old, a miss with no_jit, a kernel that
  /// Options::disable names, a forked child); kIo (reading a header); kCorrupt (the
  /// compiler's output); kCancelled; kDevice. The next call tries again.
  [[nodiscard]] Result<Kernel> get(const Request& request, const Device& device,
                                   const std::stop_token& stop = {});

  /// Starts get() in the background and returns. A later get() finds the kernel or
  /// waits for the same build. A failure in the background is only an event; get()
  /// tries again. Errors: kInvalidArgument, kNotFound (the request, the device);
  /// kUnavailable (no thread left, no driver, a forked child, a kernel that
  /// Options::disable names).
  [[nodiscard]] Result<void> prefetch(const Request& request, const Device& device);

  [[nodiscard]] Statistics statistics() const;

  /// JSON with cuDNN's 23 device properties of `device`, one of devices(); `--profile
  /// FILE` reads it on a machine without that device. Errors: kInvalidArgument,
  /// kUnavailable (no driver, a forked child), kDevice.
  [[nodiscard]] Result<std::string> profile(const Device& device) const;

 private:
  friend struct ServiceParts;  // the library's own operations
  class KILN_HIDDEN Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null after a move
};

}  // namespace kiln
