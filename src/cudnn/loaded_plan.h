// A cached execution plan, loaded on one device and run there.

#pragma once

#include <cstddef>
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
/// cuDNN does not promise that a plan of every engine may be executed by two threads at
/// a time, so each thread has one of its own, loaded with its own handle at its first
/// run or by prepare(). No lock is held while cuDNN loads or runs one.
///
/// It owns its handles and they own the context. The last owner may go on any thread,
/// in a process forked since and while the process ends; neither of those calls cuDNN.
class LoadedPlan {
 public:
  /// For the device of `handles`, and for the calling thread as by prepare(). Before
  /// cuDNN sees the plan: kCorrupt (a damaged kernel, or one of another architecture),
  /// kUnavailable (built by another version of cuDNN, or for a device with other
  /// properties: a miss, with what differs). Then kUnavailable and kDevice, with
  /// cuDNN's words. What is current to the thread stays so.
  [[nodiscard]] static Result<std::shared_ptr<const LoadedPlan>> load(
      std::shared_ptr<CudnnHandles> handles, Plan plan);

  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;
  LoadedPlan(LoadedPlan&&) = delete;
  LoadedPlan& operator=(LoadedPlan&&) = delete;
  ~LoadedPlan();

  /// Makes the calling thread ready: its handle, and this plan loaded with it.
  /// Milliseconds at the first call, nothing later. Errors: kDevice, kUnavailable.
  [[nodiscard]] Result<void> prepare() const;

  /// Puts one run on `stream`; does not wait for it. What `workspace` holds before
  /// means nothing. Streams as for device::launch(). What is current to the thread
  /// stays so.
  ///
  /// Works while `stream` is captured, if the calling thread is ready before: after
  /// load(), prepare() or a run on this thread. This plan must then outlive every
  /// launch of the graph.
  ///
  /// Errors name the plan and the device, and come before anything is put on the
  /// stream: kInvalidArgument (stream, tensors, workspace; a capture by a thread that
  /// is not ready), kUnavailable (a forked process, or one that is ending). kDevice:
  /// the driver's and cuDNN's.
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
  // Of a thread that ended the next one takes over both.
  mutable std::map<const CudnnHandle*, CudnnDescriptor> loaded_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::attention
