// Executing a plan: each of its kernels is launched once, where the simulated driver
// lets it.

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/simulated_cudnn/abi.h"
#include "tests/support/simulated_cudnn/simulator.h"

namespace kiln::simulated {
namespace {

constexpr int kExecutionFailed = 5000;

struct Execution {
  HandleState handle;
  PlanState plan;
  PackState pack;
};

/// Counts the call; nullopt where one of them is none, or not finalised.
std::optional<Execution> begin(Handle handle, Descriptor plan, Descriptor pack) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  ++all.executions;
  const auto with = all.handles.find(handle);
  const auto what = all.plans.find(plan);
  const auto on = all.packs.find(pack);
  if (with == all.handles.end() || what == all.plans.end() || on == all.packs.end() ||
      !what->second.is_final || !on->second.is_final)
    return std::nullopt;
  if (with->second.is_busy || what->second.is_busy)
    ++all.overlaps;
  with->second.is_busy = true;
  what->second.is_busy = true;
  return Execution{with->second, what->second, on->second};
}

void end(Handle handle, Descriptor plan) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  if (const auto found = all.handles.find(handle); found != all.handles.end())
    found->second.is_busy = false;
  if (const auto found = all.plans.find(plan); found != all.plans.end())
    found->second.is_busy = false;
}

CUresult launch(const Execution& what) {
  if (what.handle.context != what.plan.context)
    return CUDA_ERROR_INVALID_HANDLE;
  for (const LoadedCubin& kernel : what.plan.kernels) {
    constexpr unsigned kThreads = 32;
    const CUresult result =
        libraries().driver.cuLaunchKernel(kernel.function, 1, 1, 1, kThreads, 1, 1, 0,
                                          what.handle.stream, nullptr, nullptr);
    if (result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

void record(const Execution& what, Handle handle, Descriptor plan) {
  kiln_simulated_cudnn_run run{};
  run.device = what.handle.device;
  run.context = what.handle.context;
  run.stream = what.handle.stream;
  run.handle = handle;
  run.plan = plan;
  run.workspace = what.pack.workspace;
  run.count = std::min<std::size_t>(
      {KILN_SIMULATED_CUDNN_TENSORS, what.pack.ids.size(), what.pack.pointers.size()});
  std::copy_n(what.pack.ids.begin(), run.count, run.ids);
  std::copy_n(what.pack.pointers.begin(), run.count, run.pointers);
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  all.runs.push_back(run);
}

}  // namespace

Status cudnnBackendExecute(Handle handle, Descriptor plan, Descriptor pack) {
  if (const auto instead = injected(__func__))
    return *instead;
  const auto what = begin(handle, plan, pack);
  if (!what)
    return refuse(kBadParam, "no such handle, plan or variant pack");
  const CUresult result = launch(*what);
  end(handle, plan);
  if (result != CUDA_SUCCESS)
    return refuse(
        kExecutionFailed,
        fmt::format(
            "the launch returned error ({}){}", static_cast<int>(result),
            result == CUDA_ERROR_INVALID_HANDLE ? ": invalid resource handle" : ""));
  record(*what, handle, plan);
  return Status::kSuccess;
}

}  // namespace kiln::simulated
