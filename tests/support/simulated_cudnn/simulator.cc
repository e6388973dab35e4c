#include "tests/support/simulated_cudnn/simulator.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kiln::simulated {

using attention::cudnn::Status;

CudnnSimulator& simulator() {
  // Never destroyed. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = new CudnnSimulator;
  return *instance;
}

namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> has_ended = false;

}  // namespace

void end_with_the_process() {
  static const bool is_told = std::atexit([] { has_ended = true; }) == 0;
  static_cast<void>(is_told);
}

const Libraries& libraries() {
  if (has_ended) {
    std::fputs("simulated cuDNN: called after its end\n", stderr);
    std::abort();
  }
  CudnnSimulator& all = simulator();
  {
    const MutexLock lock(all.mutex);
    if (all.libraries)
      return *all.libraries;
  }
  if (kiln_simulated_cudnn_open(nullptr, nullptr) != 0)
    std::abort();
  const MutexLock lock(all.mutex);
  return *all.libraries;
}

Status refuse(int status, const std::string& why) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  all.errors[std::this_thread::get_id()] = why;
  return Status{status};
}

std::optional<Status> injected(const char* function) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  if (all.injected_function != function)
    return std::nullopt;
  all.injected_function.clear();
  all.errors[std::this_thread::get_id()] = "as a test has asked";
  return Status{all.injected_status};
}

}  // namespace kiln::simulated
