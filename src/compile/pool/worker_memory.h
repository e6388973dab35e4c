// How many workers the free memory has room for: a worker that the kernel kills for
// want of memory is a build that fails for no fault of its own.

#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "util/fork_count.h"

namespace kiln::compile {

/// What this process may still allocate: the smallest of MemAvailable and, of each
/// cgroup with a limit, v1 or v2, what is below that, page cache that can be given back
/// counted as free. nullopt: the system does not tell. Read anew at each call (up to a
/// millisecond). Thread-safe. Tests replace the `root` of /proc and /sys.
[[nodiscard]] std::optional<std::uint64_t> available_memory(
    const std::filesystem::path& root = "/");

/// Thread safety: every member may be called from any thread. Takes no lock.
class WorkerMemory {
 public:
  /// Room is left for workers of at least this size: NVRTC of a common source.
  static constexpr std::uint64_t kLeastBytes = 512ULL << 20U;

  /// What one worker holds, as long as it lives.
  class Share;

  explicit WorkerMemory(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// The workers of all pools of this process. A forked child has another one.
  [[nodiscard]] static WorkerMemory& of_process();

  /// The number of workers, those that live included, for which there is memory if each
  /// takes kLeastBytes or, if that is more, as much as the largest so far; at least 1.
  [[nodiscard]] unsigned room() const;

 private:
  const std::filesystem::path root_;
  const OwnerProcess owner_{};
  std::atomic<std::uint64_t> held_ = 0;
  std::atomic<std::uint64_t> peak_ = kLeastBytes;
};

/// Thread safety: one thread at a time.
class WorkerMemory::Share {
 public:
  explicit Share(WorkerMemory& memory) : memory_(&memory) {}
  Share(Share&& other) noexcept
      : memory_(other.memory_), bytes_(std::exchange(other.bytes_, 0)) {}
  Share& operator=(Share&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  ~Share() { hold(0); }

  /// The worker's resident memory is now this.
  void hold(std::uint64_t bytes);

 private:
  WorkerMemory* memory_;  // never null
  std::uint64_t bytes_ = 0;
};

}  // namespace kiln::compile
