// What Kiln works by in one value, which settings() (build/settings.h) makes once, at
// open; flags of the command line overwrite fields.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layout.h"
#include "compile/protocol/job.h"
#include "device/cuda_version.h"
#include "kiln/service.h"

namespace kiln {

/// The maximum of KILN_JOBS and --jobs.
inline constexpr unsigned kMostJobs = 1024;
/// The minimum of KILN_WORKER_MEMORY: NVRTC alone needs more.
inline constexpr std::uint64_t kLeastWorkerMemory = 64ULL << 20U;

/// Which variable or option a value comes from, for messages. Any two are equal, so
/// that Config compares values only.
struct SetBy {
  std::string_view name;
  friend bool operator==(const SetBy&, const SetBy&) { return true; }
};

/// Remote caches as they are named; remote_setup() reads it.
struct RemoteSettings {
  std::string servers;  // URLs with options; empty: none
  SetBy servers_by{"KILN_REMOTE"};
  std::string mode = "r";  // of servers whose options have none
  SetBy mode_by{"KILN_REMOTE_MODE"};
  std::filesystem::path auth;         // who asks; empty: nobody
  std::filesystem::path ca;           // certificates that are trusted; empty: libcurl's
  std::filesystem::path certificate;  // of this client, with its key; empty: none
  std::chrono::milliseconds wait{250};  // until a build starts beside a request
  friend bool operator==(const RemoteSettings&, const RemoteSettings&) = default;
};

/// Thread safety: a value.
struct Config {
  // Where objects are kept. Empty: neither KILN_CACHE_DIR nor XDG_CACHE_HOME nor HOME
  // names a place.
  std::filesystem::path cache_dir;
  SetBy cache_dir_by;  // of no name: `cache_dir` is the default
  std::uint64_t cache_limit_bytes = cache::kDefaultLimitBytes;
  // Packs and roots, asked after the root; each may have options: cache/seed_place.h.
  std::vector<std::filesystem::path> seeds;
  SetBy seeds_by{"KILN_SEED"};
  std::filesystem::path keys;  // trusted public keys; empty: none
  std::filesystem::path sign;  // a private key; empty: none
  RemoteSettings remote;       // asked after the seeds
  /// Which of the processes of a job this is, where its launcher says so.
  std::optional<std::uint32_t> rank;
  /// See precompiled_limit().
  std::optional<std::uint64_t> precompiled_limit_bytes;
  std::optional<std::string> traceparent;  // W3C's: of the trace that this is part of
  std::filesystem::path runtime_dir;   // XDG_RUNTIME_DIR: locks of a root on a network
  std::filesystem::path counters_dir;  // empty: /var/tmp
  std::vector<uid_t> trusted_uids;     // object owners besides this user and root
  std::vector<gid_t> trusted_gids;     // groups that may write what leads to objects

  std::chrono::milliseconds compile_timeout = compile::kDefaultTimeLimit;  // per build
  std::uint64_t worker_memory_bytes =
      compile::kDefaultMemoryLimit;  // resident, per build
  std::optional<unsigned> jobs;      // workers of this process; none: the usable cores
  bool no_jit = false;               // a miss is an error instead of a build
  SetBy no_jit_by{"KILN_NO_JIT"};

  std::optional<std::filesystem::path> nvrtc;  // an exact library
  SetBy nvrtc_by{"KILN_NVRTC"};
  std::optional<std::filesystem::path> cudnn;  // an exact library
  SetBy cudnn_by{"KILN_CUDNN"};
  std::optional<std::filesystem::path> driver;  // an exact library
  SetBy driver_by{"KILN_DRIVER"};
  std::optional<std::filesystem::path> worker;  // an exact program
  SetBy worker_by{"KILN_WORKER"};
  std::optional<std::string> toolchain;  // "13.0", or digits of a build id
  SetBy toolchain_by{"KILN_TOOLCHAIN"};
  // Of an option only: what is built is for a driver of this CUDA version.
  std::optional<device::CudaVersion> for_driver;

  std::vector<std::filesystem::path> template_dirs;  // searched before the built-ins
  AttentionSetting attention = AttentionSetting::kBest;
  SetBy attention_by{"KILN_ATTENTION"};
  std::vector<std::string> disabled;  // names of kernels, or "rope_*"
  SetBy disabled_by{"KILN_DISABLE"};
  std::optional<std::filesystem::path> record;  // a manifest that requests are added to
  SetBy events_by{"KILN_EVENTS"};
  std::optional<std::filesystem::path> events;  // a file that gets a line for each one
  bool store_source = true;  // of requests as NVRTC's, with their logs
  std::optional<std::string> log_level;
  friend bool operator==(const Config&, const Config&) = default;
};

/// Of precompiled headers beside the objects; 0: none are made or used. By default 2
/// GiB, but at most a fifth of the cache's limit, so that a small one stays small.
[[nodiscard]] std::uint64_t precompiled_limit(const Config& config);

/// Looks a variable up; nullopt where it is not set.
using Environment =
    std::function<std::optional<std::string>(const std::string& variable)>;

/// The environment of this process; empty in a set-uid or set-gid program, whose caller
/// must not choose what is loaded.
[[nodiscard]] Environment process_environment();

}  // namespace kiln
