#include "compile/pool/worker_memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "compile/pool/cgroups.h"

namespace kiln::compile {
namespace {

namespace fs = std::filesystem;

struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* cache;  // its name in memory.stat: what can be given back at once
};

constexpr std::array kMemoryFiles{
    MemoryFiles{"memory.max", "memory.current", "inactive_file"},
    MemoryFiles{"memory.high", "memory.current", "inactive_file"},
    MemoryFiles{"memory.limit_in_bytes", "memory.usage_in_bytes",
                "total_inactive_file"}};

/// `less` from `bytes`, and never below zero.
std::uint64_t without(std::uint64_t bytes, std::uint64_t less) {
  return bytes - std::min(bytes, less);
}

std::optional<std::uint64_t> free_in(const fs::path& group, const MemoryFiles& files) {
  const auto limit = number_in(group / files.limit);
  const auto used = limit ? number_in(group / files.used) : std::nullopt;
  if (!used)
    return std::nullopt;
  const auto cache = number_in(group / "memory.stat", files.cache);
  return without(*limit, without(*used, cache.value_or(0)));
}

}  // namespace

std::optional<std::uint64_t> available_memory(const fs::path& root) {
  std::optional<std::uint64_t> least;
  const auto apply = [&least](std::optional<std::uint64_t> bytes) {
    if (bytes)
      least = std::min(*bytes, least.value_or(*bytes));
  };
  if (const auto kib = number_in(root / "proc/meminfo", "MemAvailable:"))
    apply(*kib << 10U);
  for_each_cgroup(root, "memory", [&](const fs::path& group) {
    for (const MemoryFiles& files : kMemoryFiles) apply(free_in(group, files));
  });
  return least;
}

WorkerMemory& WorkerMemory::of_process() {
  // Never destroyed: pools may outlive main.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static std::atomic<WorkerMemory*> known = nullptr;
  WorkerMemory* current = known;
  if (current != nullptr && current->owner_.is_this())
    return *current;
  auto fresh = std::make_unique<WorkerMemory>();
  if (known.compare_exchange_strong(current, fresh.get()))
    return *fresh.release();  // the parent's is left alone
  return *current;            // another thread was faster
}

unsigned WorkerMemory::room() const {
  const auto available = available_memory(root_);
  if (!available)
    return std::numeric_limits<unsigned>::max();
  return static_cast<unsigned>(std::clamp<std::uint64_t>(
      (*available + held_) / peak_, 1, std::numeric_limits<unsigned>::max()));
}

void WorkerMemory::Share::hold(std::uint64_t bytes) {
  memory_->held_ += bytes - bytes_;  // modulo 2^64: it may shrink
  bytes_ = bytes;
  std::uint64_t peak = memory_->peak_;
  while (bytes > peak && !memory_->peak_.compare_exchange_weak(peak, bytes)) {
  }
}

}  // namespace kiln::compile
