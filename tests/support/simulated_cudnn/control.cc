// The remote control: tests/support/simulated_cudnn/simulated_cudnn.h.

#pragma GCC visibility push(default)
#include "tests/support/simulated_cudnn/simulated_cudnn.h"
#pragma GCC visibility pop

#include <algorithm>
#include <cstdlib>

#include "tests/support/simulated_cudnn/simulator.h"

using kiln::MutexLock;
using kiln::simulated::CudnnSimulator;
using kiln::simulated::simulator;

namespace {

std::string from_environment(const char* name, const char* otherwise) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): tests set it before they open the library
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace

std::size_t kiln::simulated::version_of_environment() {
  const std::string version = from_environment("KILN_SIMULATED_CUDNN_VERSION", "0");
  return std::strtoull(version.c_str(), nullptr, 10);
}

int kiln_simulated_cudnn_open(const char* driver, const char* real_cudnn) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  if (!all.libraries)
    all.libraries = kiln::simulated::open_libraries(
        driver == nullptr ? from_environment("KILN_DRIVER", "libcuda.so.1") : driver,
        real_cudnn == nullptr
            ? from_environment("KILN_SIMULATED_CUDNN_REAL", "libcudnn.so.9")
            : real_cudnn);
  return all.libraries ? 0 : -1;
}

void kiln_simulated_cudnn_set_version(size_t version) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  all.version = version;
}

void kiln_simulated_cudnn_inject(const char* function, int status) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  all.injected_function = function;
  all.injected_status = status;
}

size_t kiln_simulated_cudnn_count(kiln_simulated_cudnn_counts what) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  switch (what) {
    case KILN_SIMULATED_CUDNN_HANDLES:
      return all.handles.size();
    case KILN_SIMULATED_CUDNN_HANDLES_MADE:
      return all.handles_made;
    case KILN_SIMULATED_CUDNN_PLANS:
      return all.plans.size();
    case KILN_SIMULATED_CUDNN_PACKS:
      return all.packs.size();
    case KILN_SIMULATED_CUDNN_PLANS_LOADED:
      return all.plans_loaded;
    case KILN_SIMULATED_CUDNN_EXECUTIONS:
      return all.executions;
    case KILN_SIMULATED_CUDNN_OVERLAPS:
      return all.overlaps;
  }
  return 0;
}

size_t kiln_simulated_cudnn_runs(kiln_simulated_cudnn_run* out, size_t room) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  std::copy_n(all.runs.begin(), std::min(room, all.runs.size()), out);
  return all.runs.size();
}
