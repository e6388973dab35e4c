#include "tests/support/simulated_driver/computing.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <utility>

#include "tests/support/simulated_driver/faults.h"
#include "util/mutex.h"

namespace kiln::simulated {
namespace {

/// What launches found; of the whole process.
struct Findings {
  Mutex mutex;
  std::string text KILN_GUARDED_BY(mutex);
};
Findings& findings() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const all = new Findings;
  return *all;
}

}  // namespace

void say(const std::string& line) {
  fmt::print(stderr, "simulated driver: {}\n", line);
  const MutexLock lock(findings().mutex);
  findings().text += line + "\n";
}

bool set_computing(Computing& computing, std::string_view name,
                   std::string_view value) {
  if (name == "KERNELS") {
    computing.is_on = value == "run";
    return value == "run" || value == "record";
  }
  if (name == "MEMORY") {
    computing.is_host_memory_seen = value == "process";
    return value == "process" || value == "device";
  }
  if (name == "SEED") {
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, computing.schedule.seed);
    computing.schedule.splits_warps = computing.schedule.seed != 0;
    computing.schedule.is_noisy = computing.schedule.seed != 0;
    return read.ec == std::errc() && read.ptr == end;
  }
  if (name != "CHECKS")
    return false;
  computing.checks = {};
  for (const std::string_view each : split(value)) {
    if (each == "unset")
      computing.checks.unset = true;
    else if (each == "races")
      computing.checks.races = true;
    else
      return false;
  }
  return true;
}

std::string& last_error() {
  thread_local std::string error;
  return error;
}

std::string take_report() {
  const MutexLock lock(findings().mutex);
  return std::exchange(findings().text, {});
}

}  // namespace kiln::simulated
