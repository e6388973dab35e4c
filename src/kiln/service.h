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

/// Something that a get() has done; prefetch() runs a get(), too.
struct Event {
  enum class Kind : std::uint8_t {
    kHit,        // found on disk; or its binary in memory, if it could not be stored
    kCompiled,   // built by this call
    kWaited,     // another process or thread built or loaded it meanwhile
    kNotStored,  // built and usable, but not stored on disk; `error` says why
    kLoaded,     // loaded on the device
    kFailed,     // `error` says why
    kSeed,       // found in a seed
    kRemote,     // found on a remote
  };
  Kind kind;
  std::string kernel;  // as Kernel::name()
  std::string key;     // 64 hex digits; "" if it failed before the key was known
  int device = 0;      // the ordinal
  std::chrono::nanoseconds took{};  // since get() began
  std::optional<Error> error{};
};

/// "hit", "compiled", "waited", "not_stored", "loaded", "failed", "seed", "remote".
/// Thread-safe.
[[nodiscard]] KILN_EXPORT std::string_view to_string(Event::Kind kind);

/// What computes attention. kBest: cuDNN if it can run the problem, else Kiln's own
/// kernel. kCudnn, kKiln: only that one; a problem that it cannot run is an error.
enum class AttentionSetting : std::uint8_t { kBest, kCudnn, kKiln };

/// Settings of a service. A field that is set overrides the environment variable named
/// beside it; if neither is set, the default holds. A variable that is empty is not
/// set. A set-uid or set-gid program reads no variable.
struct Options {
  /// Folder of the cache. Default: $XDG_CACHE_HOME/kiln, else ~/.cache/kiln.
  std::optional<std::filesystem::path> cache_dir{};  // KILN_CACHE_DIR
  /// Above this, the least recently used objects are deleted. Default: 10 GiB.
  std::optional<std::uint64_t> cache_limit_bytes{};  // KILN_CACHE_SIZE
  /// Precompiled headers are made and used up to this; 0: none. Default: 2 GiB, but at
  /// most a fifth of the cache's limit.
  std::optional<std::uint64_t> precompiled_limit_bytes{};  // KILN_PCH_SIZE
  /// Folder of the node for the counts of a cache that is read-only or on a network
  /// file system. Default: /var/tmp.
  std::optional<std::filesystem::path> counters_dir{};  // KILN_COUNTERS_DIR
  /// Wall-clock limit of one build, above 0. Default: 300 s.
  std::optional<std::chrono::milliseconds> compile_timeout{};  // KILN_COMPILE_TIMEOUT
  /// Limit of the resident memory of one build, 64 MiB or more. Default: 4 GiB.
  std::optional<std::uint64_t> worker_memory_bytes{};  // KILN_WORKER_MEMORY
  /// Builds at a time, 1 to 1024. Default: the number of usable cores. Fewer run while
  /// there is no memory for so many.
  std::optional<unsigned> jobs{};  // KILN_JOBS
  /// Builds nothing: a kernel that is not in the cache is kUnavailable.
  std::optional<bool> no_jit{};  // KILN_NO_JIT
  /// Paths of the libraries to load: libnvrtc, libcudnn, libcuda. Default: searched.
  std::optional<std::filesystem::path> nvrtc{};   // KILN_NVRTC
  std::optional<std::filesystem::path> cudnn{};   // KILN_CUDNN
  std::optional<std::filesystem::path> driver{};  // KILN_DRIVER
  /// Path of the kiln-worker program.
  std::optional<std::filesystem::path> worker{};  // KILN_WORKER
  /// Which of the NVRTCs found: "13.0", or 8 or more digits of its build id.
  std::optional<std::string> toolchain{};  // KILN_TOOLCHAIN
  /// Default: kBest.
  std::optional<AttentionSetting> attention{};  // KILN_ATTENTION
  /// Folders with templates, searched before the built-in ones.
  std::optional<std::vector<std::filesystem::path>>
      template_dirs{};  // KILN_TEMPLATE_DIR
  /// A file to which each requested kernel is added, for `kiln warm --manifest`.
  std::optional<std::filesystem::path> record{};  // KILN_RECORD
  /// A file to which a JSON line is added for each kernel that is found, built or
  /// waited for; or a folder, in which each process has a file of its own.
  std::optional<std::filesystem::path> events{};  // KILN_EVENTS
  /// Templates that get() refuses, as names or shell patterns: "rope_fwd", "scaled_*".
  std::optional<std::vector<std::string>> disable{};  // KILN_DISABLE
  /// User ids whose cache objects are trusted, besides this user's and root's.
  std::optional<std::vector<std::uint32_t>> trusted_uids{};  // KILN_TRUSTED_UIDS
  /// Group ids whose members may write the folders on the way to the cache.
  std::optional<std::vector<std::uint32_t>> trusted_gids{};  // KILN_TRUSTED_GIDS
  /// Packs and cache folders that are read where the cache has no kernel. A pack may
  /// have options: "/a.kpack;signed=1;min_serial=7".
  std::optional<std::vector<std::filesystem::path>> seeds{};  // KILN_SEED
  /// File of public keys. What a remote cache delivers must be signed by one of them,
  /// and so must a pack among the seeds that has signatures.
  std::optional<std::filesystem::path> remote_keys{};  // KILN_REMOTE_KEYS
  /// URLs of remote caches, with spaces, that are asked where nothing here has a
  /// kernel. Each may have options: "https://c/kiln;mode=rw". Default: none.
  std::optional<std::string> remote{};  // KILN_REMOTE
  /// "off", "r" (the default) or "rw": what is built here is uploaded, too.
  std::optional<std::string> remote_mode{};  // KILN_REMOTE_MODE
  /// Files: the private key that uploads are signed with; "bearer TOKEN", "basic U:P"
  /// or "aws", perhaps behind a server's URL, which nobody else may read; certificates
  /// of authorities; a certificate of this client with its key. Default: none.
  std::optional<std::filesystem::path> remote_sign{};         // KILN_REMOTE_SIGN
  std::optional<std::filesystem::path> remote_auth{};         // KILN_REMOTE_AUTH
  std::optional<std::filesystem::path> remote_ca{};           // KILN_REMOTE_CA
  std::optional<std::filesystem::path> remote_certificate{};  // KILN_REMOTE_CERT
  /// How long a request to a remote may take before the build starts beside it; the
  /// first result counts. Default: 250 ms.
  std::optional<std::chrono::milliseconds> remote_wait{};  // KILN_REMOTE_WAIT
  /// False: sources and logs of programs beneath `kiln run` are not kept on disk.
  /// Default: true.
  std::optional<bool> store_source{};  // KILN_STORE_SOURCE
  /// "trace", "debug", "info", "warning" (the default), "error" or "off". For the whole
  /// process. The log goes to stderr; kiln_log_to() of kiln/c.h sends it elsewhere.
  std::optional<std::string> log_level{};  // KILN_LOG
  /// Called for each event on the thread that caused it; several threads may call it at
  /// once. It must not call the service. A hit in memory is no event. Exceptions from
  /// it are logged, not passed on. No call begins after the service was destroyed.
  std::function<void(const Event&)> on_event{};
};

/// Counts of a service since it was opened; all but the first count events.
struct Statistics {
  std::uint64_t memory_hits = 0;  // already loaded; no event
  std::uint64_t disk_hits = 0;
  std::uint64_t compiled = 0;
  std::uint64_t waited = 0;
  std::uint64_t not_stored = 0;  // also counted in `compiled`
  std::uint64_t loaded = 0;      // modules, on all devices
  std::uint64_t failed = 0;      // calls of get() and prefetches that failed
  std::uint64_t seed_hits = 0;
  std::uint64_t remote_hits = 0;
  friend bool operator==(const Statistics&, const Statistics&) = default;
};

/// Compiles, finds and loads kernels. No function throws, and a thread that
/// pthread_cancel() ends finishes its call first. Only assign to or destroy a
/// moved-from Service. In a forked child, only devices(), statistics() and destruction
/// work; the rest returns kUnavailable. Thread safety: any number of threads may call
/// any method, except while the service is moved or destroyed.
///
/// A kernel stays loaded until the service and all copies of the kernel are gone. Equal
/// requests get the same kernel. Only a source whose build read a header that the key
/// does not cover is different: its kernel belongs to the Request that get() was called
/// with and to copies of that Request, and stays loaded until they are gone, too.
class KILN_EXPORT Service {
 public:
  /// Reads the environment (no other thread may change it meanwhile), opens the cache
  /// and lists the devices of the driver. If the cache cannot be opened, logs a warning
  /// and keeps kernels in memory only. Does not wait for NVRTC. A machine without a
  /// driver is no error: devices() is empty. Errors: kInvalidArgument (a setting or a
  /// template folder), kIo (the file of KILN_RECORD), kUnavailable (a driver library
  /// that cannot be loaded), kDevice (a driver that fails).
  [[nodiscard]] static Result<Service> open(const Options& options = {});

  Service(Service&& other) noexcept;
  Service& operator=(Service&& other) noexcept;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  /// Cancels prefetches and their builds, which takes up to about a second. If the
  /// driver is loading a prefetched kernel, waits for that. Waits up to 5 s for uploads
  /// (Options::remote_mode "rw"). No other thread may be in a call of this service.
  ~Service();

  /// All devices, by ordinal; empty without a driver or devices. Valid as long as the
  /// service.
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
  /// returned at once, without waiting for any build or load. Any other is found on
  /// disk or built, and then loaded, once for all threads that ask meanwhile; that
  /// blocks. Every wait has a deadline, but for that behind builds of this process,
  /// each of which has one. `stop` cancels a wait for a build, and a build that this
  /// call runs. A fault of the cache is never an error.
  ///
  /// Errors: kInvalidArgument, kNotFound (the request, the device); kCompileFailed with
  /// NVRTC's log; kTimeout, kResourceLimit, kWorkerCrashed; kUnavailable (no NVRTC for
  /// this device, a driver that is too old, a miss with no_jit, a kernel that
  /// Options::disable names, a forked child); kIo (reading a header); kCorrupt (the
  /// compiler's output); kCancelled; kDevice. The next call tries again, but a build
  /// that has killed its compile worker twice returns the same error for 10 minutes.
  [[nodiscard]] Result<Kernel> get(const Request& request, const Device& device,
                                   const std::stop_token& stop = {});

  /// Starts get() on a thread of the service and returns. A later get() finds the
  /// kernel or waits for the same build. A failure in the background is reported as an
  /// event only; a later get() tries again. Errors: kInvalidArgument, kNotFound (the
  /// request, the device); kUnavailable (no thread left, no driver, a forked child, a
  /// kernel that Options::disable names).
  [[nodiscard]] Result<void> prefetch(const Request& request, const Device& device);

  [[nodiscard]] Statistics statistics() const;

  /// JSON with the 23 properties of `device`, one of devices(), that cuDNN needs. Write
  /// it to a file: `kiln warm --profile FILE` and `kiln attention warm --profile FILE`
  /// then build for this device on any machine. Errors: kInvalidArgument,
  /// kUnavailable (no driver, a forked child), kDevice.
  [[nodiscard]] Result<std::string> profile(const Device& device) const;

 private:
  friend struct ServiceParts;  // the library's own operations
  class KILN_HIDDEN Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // null after a move
};

}  // namespace kiln
