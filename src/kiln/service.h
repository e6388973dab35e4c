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

/// Something that happened to a request on a device.
struct Event {
  enum class Kind : std::uint8_t {
    kHit,        // found on disk, or in memory where it could not be stored
    kCompiled,   // built by this call
    kWaited,     // built or loaded by another process or thread meanwhile
    kNotStored,  // built and usable, but not stored on disk; `error` says why
    kLoaded,     // on the device
    kFailed,     // `error` says why
  };
  Kind kind;
  std::string kernel;  // as Kernel::name()
  std::string key;     // 64 hex digits; "" where it failed before it had a key
  int device = 0;      // its ordinal
  std::chrono::nanoseconds took{};  // since get() was called
  std::optional<Error> error{};
};

/// "hit", "compiled", "waited", "not_stored", "loaded", "failed". Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(Event::Kind kind);

/// Who computes attention: cuDNN where it can, else Kiln's own kernel; or one of the
/// two whatever comes.
enum class AttentionSetting : std::uint8_t { kBest, kCudnn, kKiln };

/// Settings of a service. One that is set overrides the environment variable named
/// beside it, and the default.
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
  /// Called for each event, by the thread that caused it; several threads may call it
  /// at once. Hits in memory are no events. It must not call the service. What it
  /// throws is logged.
  std::function<void(const Event&)> on_event{};
};

/// Counts of a service since it was opened.
struct Statistics {
  std::uint64_t memory_hits = 0;  // was loaded before
  std::uint64_t disk_hits = 0;
  std::uint64_t compiled = 0;
  std::uint64_t waited = 0;
  std::uint64_t not_stored = 0;  // of those compiled
  std::uint64_t loaded = 0;      // modules, over all devices
  std::uint64_t failed = 0;
  friend bool operator==(const Statistics&, const Statistics&) = default;
};

/// Compiles, finds and loads kernels. A kernel stays loaded until the service and every
/// copy of the kernel are gone, and may outlive the service. (One that was built from a
/// header that no key could name stays as long as its Request, and answers no other.)
/// No function throws. A moved-from Service can be assigned to and destroyed, nothing
/// else. After a fork, a service whose process had devices gives the child errors.
/// Thread safety: every method may run concurrently, but for moving and destruction.
class KILN_EXPORT Service {
 public:
  /// Reads the environment, opens the cache and asks the driver for its devices. Where
  /// the cache cannot be opened, it warns and keeps kernels in memory alone. Does not
  /// wait for NVRTC. Errors: kInvalidArgument (a setting or a template folder), kIo
  /// (KILN_RECORD), kUnavailable, kDevice (a driver that is there and does not work).
  [[nodiscard]] static Result<Service> open(const Options& options = {});

  Service(Service&& other) noexcept;
  Service& operator=(Service&& other) noexcept;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  /// Stops prefetches and the builds they run within about a second, and waits for a
  /// driver that is loading one. No other thread may be in a call.
  ~Service();

  /// In CUDA's order; empty on a machine without a driver or without devices.
  [[nodiscard]] const std::vector<Device>& devices() const;

  /// The device of that ordinal. Errors: kUnavailable (no driver, no device, a forked
  /// child), kInvalidArgument (no device of that number).
  [[nodiscard]] Result<Device> device(int ordinal = 0) const;

  /// The device of `stream`. A null stream, and CUDA's legacy and per-thread ones, are
  /// those of the context current to the thread; where none is, of the only device.
  /// Works while `stream` is captured. Errors: kInvalidArgument (no context is current,
  /// and there are several devices), kUnavailable (no driver, a forked child), kDevice.
  [[nodiscard]] Result<Device> device_of(CUstream_st* stream) const;

  /// The kernel, loaded on `device`, one of devices(): from memory, without waiting for
  /// any build or load; else from disk, or built, and loaded once for all threads that
  /// ask meanwhile. Blocks. Every wait has a deadline; `stop` ends a wait for a build,
  /// and the build itself. A fault of the cache is never an error.
  ///
  /// Errors: kInvalidArgument, kNotFound (the request, the device); kCompileFailed with
  /// NVRTC's log; kTimeout, kResourceLimit, kWorkerCrashed; kUnavailable (no NVRTC for
  /// this device, a driver that is too old, a miss with no_jit, a kernel that
  /// Options::disable names, a forked child); kIo (a header); kCorrupt (the compiler's
  /// output); kCancelled; kDevice. The next call tries again.
  [[nodiscard]] Result<Kernel> get(const Request& request, const Device& device,
                                   const std::stop_token& stop = {});

  /// Starts get() in the background and returns. A later get() finds the kernel, or
  /// waits for the same build; what fails in the background is an event, and get()
  /// tries again. Errors: kInvalidArgument, kNotFound (the request, the device);
  /// kUnavailable (no thread left, no driver, a forked child, a kernel that
  /// Options::disable names).
  [[nodiscard]] Result<void> prefetch(const Request& request, const Device& device);

  [[nodiscard]] Statistics statistics() const;

  /// The device as JSON with cuDNN's 23 device properties, which `--profile FILE` reads
  /// on a machine without it. Errors: kInvalidArgument, kDevice.
  [[nodiscard]] Result<std::string> profile(const Device& device) const;

 private:
  friend struct ServiceParts;  // the library's own operations
  class KILN_HIDDEN Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null after a move
};

}  // namespace kiln
