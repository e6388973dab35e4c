// What the simulated cuDNN knows.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/simulated_cudnn/libraries.h"
#include "tests/support/simulated_cudnn/simulated_cudnn.h"
#include "util/mutex.h"

namespace kiln::simulated {

inline constexpr int kBadParam = 2000;  // CUDNN_STATUS_BAD_PARAM

struct HandleState {
  CUcontext context = nullptr;
  CUdevice device = 0;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;  // cuDNN has some of its own for each
  bool is_busy = false;
};

struct LoadedCubin {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
};

struct PlanState {
  attention::cudnn::Handle handle = nullptr;
  CUcontext context = nullptr;  // the handle's, which may be gone by then
  std::string json;
  std::vector<LoadedCubin> kernels;
  bool is_final = false;
  bool is_busy = false;
};

struct PackState {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  void* workspace = nullptr;
  bool is_final = false;
};

/// KILN_SIMULATED_CUDNN_VERSION; 0: none is set.
[[nodiscard]] std::size_t version_of_environment();

/// `mutex` is not held while the driver or the real cuDNN is called.
struct CudnnSimulator {
  Mutex mutex;
  std::optional<Libraries> libraries KILN_GUARDED_BY(mutex);  // once set, constant
  // 0: the real one's
  std::size_t version KILN_GUARDED_BY(mutex) = version_of_environment();
  std::string injected_function KILN_GUARDED_BY(mutex);
  int injected_status KILN_GUARDED_BY(mutex) = 0;
  std::map<attention::cudnn::Handle, HandleState> handles KILN_GUARDED_BY(mutex);
  std::map<attention::cudnn::Descriptor, PlanState> plans KILN_GUARDED_BY(mutex);
  std::map<attention::cudnn::Descriptor, PackState> packs KILN_GUARDED_BY(mutex);
  std::map<CUdevice, attention::cudnn::Descriptor> properties KILN_GUARDED_BY(mutex);
  std::map<std::thread::id, std::string> errors
      KILN_GUARDED_BY(mutex);  // what was last said on each thread
  std::vector<kiln_simulated_cudnn_run> runs KILN_GUARDED_BY(mutex);
  std::size_t handles_made KILN_GUARDED_BY(mutex) = 0;
  std::size_t plans_loaded KILN_GUARDED_BY(mutex) = 0;
  std::size_t executions KILN_GUARDED_BY(mutex) = 0;
  std::size_t overlaps KILN_GUARDED_BY(mutex) = 0;
};

/// Never destroyed.
[[nodiscard]] CudnnSimulator& simulator();

/// From now on the process may end: whoever calls cuDNN after that ends it with a
/// message. As with cuDNN, whose own libraries are loaded when they are needed first,
/// and end before those that were there.
void end_with_the_process();

/// Opened by now; ends the process where that fails.
[[nodiscard]] const Libraries& libraries();

/// cudnnGetLastErrorString()'s next words on this thread.
attention::cudnn::Status refuse(int status, const std::string& why);

/// The status that a test has asked for instead of a call, once.
[[nodiscard]] std::optional<attention::cudnn::Status> injected(const char* function);

}  // namespace kiln::simulated
