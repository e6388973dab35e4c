#include "compile/pool/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "compile/pool/cgroups.h"

namespace kiln::compile {
namespace {

/// Grows the set until the kernel accepts its size: a machine can have over 1024 cores.
unsigned affinity_cores() {
  for (int cores = 1024; cores <= 1 << 20; cores *= 2) {
    const std::size_t size = CPU_ALLOC_SIZE(cores);
    std::vector<std::byte> memory(size);
    auto* const set = reinterpret_cast<cpu_set_t*>(memory.data());
    if (::sched_getaffinity(0, size, set) == 0)
      return static_cast<unsigned>(CPU_COUNT_S(size, set));
    if (errno != EINVAL)
      break;
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

std::optional<unsigned> whole_cores(std::optional<std::uint64_t> quota,
                                    std::optional<std::uint64_t> period) {
  if (!quota || !period || *period == 0 || *quota > UINT32_MAX)
    return std::nullopt;
  return static_cast<unsigned>(
      std::max<std::uint64_t>(1, (*quota + *period - 1) / *period));
}

}  // namespace

std::optional<unsigned> cgroup_cores(const std::filesystem::path& root) {
  std::optional<unsigned> least;
  for_each_cgroup(root, "cpu", [&least](const std::filesystem::path& folder) {
    const auto apply = [&least](std::optional<unsigned> cores) {
      if (cores)
        least = least ? std::min(*least, *cores) : *cores;
    };
    // "200000 100000": two cores.
    if (const auto quota = number_in(folder / "cpu.max"))
      apply(whole_cores(quota, number_in(folder / "cpu.max", std::to_string(*quota))));
    apply(whole_cores(number_in(folder / "cpu.cfs_quota_us"),
                      number_in(folder / "cpu.cfs_period_us")));
  });
  return least;
}

unsigned usable_cores() {
  const unsigned cores = std::max(1U, affinity_cores());
  const auto quota = cgroup_cores();
  return quota ? std::min(cores, *quota) : cores;
}

}  // namespace kiln::compile
