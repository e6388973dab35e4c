// A cached execution plan, loaded on one device and run there.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/plan.h"
#include "cudnn/descriptor.h"
#include "cudnn/handles.h"
#include "cudnn/plan_arguments.h"
#include "device/primary_context.h"
#include "kiln/result.h"
#include "util/mutex.h"

struct CUctx_st;
struct CUstream_st;

namespace kiln::attention {

/// Thread safety: every method may run concurrently; share through std::shared_ptr.
/// cuDNN does not promise for every engine that two threads may execute one plan
/// concurrently. So each thread loads the plan with its own handle, at its first run or
/// by prepare(). No lock is held while cuDNN loads or runs a plan.
///
/// It owns its handles, and they own the context. The last owner may be destroyed on
/// any thread, in a forked child and at process exit; in the latter two cuDNN is not
/// called.
class LoadedPlan {
 public:
  /// Loads the plan for the device of `handles`, and for the calling thread as
  /// prepare() does. Errors before cuDNN sees the plan: kCorrupt (a kernel is damaged
  /// or for another architecture), kUnavailable (built by another version of cuDNN, or
  /// for a device with other properties: a miss; the message names the difference).
  /// Errors from cuDNN, with its message: kUnavailable, kDevice. The thread's current
  /// context does not change.
  [[nodiscard]] static Result<std::shared_ptr<const LoadedPlan>> load(
      std::shared_ptr<CudnnHandles> handles, Plan plan);

  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;
  ~LoadedPlan();

  /// Creates the calling thread's handle and loads this plan with it. Takes
  /// milliseconds at the first call, nothing later. Errors: kDevice, kUnavailable.
  [[nodiscard]] Result<void> prepare() const;

  /// Enqueues one run on `stream` and does not wait for it. The initial content of
  /// `workspace` does not matter. Streams: as for device::launch(). The thread's
  /// current context does not change.
  ///
  /// Works during a capture of `stream` if the calling thread is ready: it has called
  /// load(), prepare() or run() before. This plan must then outlive every launch of the
  /// graph.
  ///
  /// Errors name the plan and the device. Before anything is enqueued: kInvalidArgument
  /// (stream, tensors, workspace; a capture by a thread that is not ready),
  /// kUnavailable (in a forked child, or when the process ends). From the driver and
  /// cuDNN: kDevice.
  [[nodiscard]] Result<void> run(CUstream_st* stream,
                                 std::span<const TensorPointer> tensors,
                                 WorkspaceMemory workspace) const;

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const device::PrimaryContext& context() const {
    return handles_->context();
  }
  /// "plan (engine 2, KERNEL_CFG=7) on device 0 (NVIDIA H100)", for errors.
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  /// What a thread runs a plan with.
  struct Ready {
    const CudnnHandle* handle;
    void* plan;
  };

  LoadedPlan(std::shared_ptr<CudnnHandles> handles, Plan plan, std::string label);
  [[nodiscard]] Result<void> check_stream(CUstream_st* stream, CUctx_st* before) const;
  [[nodiscard]] Result<Ready> ready_for(CUstream_st* stream) const;
  [[nodiscard]] Result<Ready> make_ready() const;
  [[nodiscard]] void* find(const CudnnHandle* handle) const;
  [[nodiscard]] Result<void> fill(CUstream_st* stream, void* workspace) const;
  [[nodiscard]] Result<void> execute(const Ready& ready, CUstream_st* stream,
                                     std::span<void* const> tensors,
                                     void* workspace) const;

  // Constant after construction.
  const std::shared_ptr<CudnnHandles> handles_;
  const Plan plan_;  // its scalars and values are read by address
  const std::string label_;
  const std::vector<std::int64_t> ids_;  // tensors, scalars, workspace

  mutable Mutex mutex_;
  // When a thread ends, the next one takes over its handle and the entry here.
  mutable std::map<const CudnnHandle*, CudnnDescriptor> loaded_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::attention
