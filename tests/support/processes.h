// Other processes as a test sees them, through /proc.

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace kiln::test {

/// Direct children of `parent`, zombies included.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code gone;
  const auto tasks = "/proc/" + std::to_string(parent) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream list(task.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

/// False for a process that is gone and for a zombie.
inline bool is_running(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(status, line))
    return false;
  const auto state = line.rfind(')');  // the name before it may hold anything
  return state + 2 < line.size() && line[state + 2] != 'Z' && line[state + 2] != 'X';
}

/// The most memory that it has had resident since it began or since its peak was reset;
/// 0 for a process that is gone.
inline std::uint64_t peak_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:"))
      return std::stoull(line.substr(6));
  }
  return 0;
}

/// Asks `condition` every 10 ms until it is true or `patience` is over.
inline bool eventually(std::chrono::milliseconds patience,
                       const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace kiln::test
