#include "compile/pool/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "util/proc_file.h"

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

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

/// "200000 100000\n" is two cores; "max 100000" is no limit.
std::optional<unsigned> parse_cpu_max(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  const auto space = text.find(' ');
  if (space == std::string_view::npos)
    return std::nullopt;
  const auto quota = parse_number(text.substr(0, space));
  const auto period = parse_number(text.substr(space + 1));
  if (!quota || !period || *period == 0 || *quota > UINT32_MAX)
    return std::nullopt;
  return static_cast<unsigned>(
      std::max<std::uint64_t>(1, (*quota + *period - 1) / *period));
}

/// The path on the line "0::/path": cgroup v2's only line.
std::optional<std::string_view> unified_path(std::string_view proc_self_cgroup) {
  while (!proc_self_cgroup.empty()) {
    const auto line = proc_self_cgroup.substr(0, proc_self_cgroup.find('\n'));
    if (line.starts_with("0::/"))
      return line.substr(4);
    proc_self_cgroup.remove_prefix(std::min(line.size() + 1, proc_self_cgroup.size()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<unsigned> cgroup_cores(const std::filesystem::path& cgroup_root,
                                     std::string_view proc_self_cgroup) {
  const auto path = unified_path(proc_self_cgroup);
  if (!path)
    return std::nullopt;
  std::optional<unsigned> least;
  const auto apply_limit = [&least](const std::filesystem::path& folder) {
    // The root has no cpu.max, and a container may hide the others: then no limit.
    const auto text = read_proc_file(folder / "cpu.max");
    const auto cores = text ? parse_cpu_max(*text) : std::nullopt;
    if (cores)
      least = least ? std::min(*least, *cores) : *cores;
  };
  std::filesystem::path folder = cgroup_root;
  apply_limit(folder);
  for (const auto& part : std::filesystem::path(*path)) {
    folder /= part;
    apply_limit(folder);
  }
  return least;
}

unsigned usable_cores() {
  const unsigned cores = std::max(1U, affinity_cores());
  const auto groups = read_proc_file("/proc/self/cgroup");
  if (!groups)
    return cores;
  const auto quota = cgroup_cores("/sys/fs/cgroup", *groups);
  return quota ? std::min(cores, *quota) : cores;
}

}  // namespace kiln::compile
