#include "cudnn/loaded_plan.h"

#include <fmt/format.h>

#include <utility>

#include "attention/plan_binding.h"
#include "cudnn/table.h"
#include "device/context_scope.h"
#include "device/driver_table.h"
#include "device/profile.h"
#include "device/stream_device.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

using device::ContextScope;
using device::DriverTable;
using device::label_of;
using device::PrimaryContext;
using device::RelaxedCapture;

Result<void> check_version(const Plan& plan, const CudnnLibrary& library,
                           std::string_view on) {
  if (plan.cudnn == library.version())
    return {};
  return fail(
      ErrorCode::kUnavailable, "{}: it was built by cuDNN {}, and {} is version {}", on,
      to_string(plan.cudnn), library.path().native(), to_string(library.version()));
}

Result<void> check_device(const Plan& plan, const PrimaryContext& context,
                          std::string_view on) {
  const auto here = KILN_TRY(binding_of(
      KILN_TRY(device::describe_device(context.driver(), context.device().ordinal))));
  const std::string difference = describe_difference(plan.bound, here);
  if (difference.empty())
    return {};
  return fail(ErrorCode::kUnavailable, "{}: it was built for another device: {}", on,
              difference);
}

std::vector<std::int64_t> ids_of(const Plan& plan) {
  std::vector<std::int64_t> ids;
  for (const TensorRole role : plan.tensors)
    ids.push_back(static_cast<std::int64_t>(role));
  for (const PlanScalar& scalar : plan.scalars) ids.push_back(scalar.uid);
  for (const WorkspaceTensor& tensor : plan.workspace) ids.push_back(tensor.uid);
  return ids;
}

std::byte* at(void* workspace, std::uint64_t offset) {
  return static_cast<std::byte*>(workspace) + offset;
}

}  // namespace

LoadedPlan::LoadedPlan(std::shared_ptr<CudnnHandles> handles, Plan plan,
                       std::string label)
    : handles_(std::move(handles)),
      plan_(std::move(plan)),
      label_(std::move(label)),
      ids_(ids_of(plan_)) {}

Result<std::shared_ptr<const LoadedPlan>> LoadedPlan::load(
    std::shared_ptr<CudnnHandles> handles, Plan plan) {
  const PrimaryContext& context = handles->context();
  std::string label =
      fmt::format("plan ({}) on {}", plan.engine, label_of(context.device()));
  KILN_TRY(handles->check_process());
  KILN_TRY(about(label, check_kernels(plan)));
  KILN_TRY(check_version(plan, handles->library(), label));
  KILN_TRY(check_device(plan, context, label));
  const std::shared_ptr<const LoadedPlan> made(
      new LoadedPlan(std::move(handles), std::move(plan), std::move(label)));
  KILN_TRY(made->prepare());
  return made;
}

LoadedPlan::~LoadedPlan() {
  if (!handles_->check_process()) {
    // No lock: in a forked child it may be held for ever, and nobody else uses this
    // object.
    for (auto& [handle, descriptor] : loaded_) descriptor.release();
    return;
  }
  const MutexLock lock(mutex_);
  const DriverTable& driver = context().driver().table();
  const RelaxedCapture relaxed(driver);
  const ContextScope scope(context());
  if (scope.result() != CUDA_SUCCESS) {
    device::log_failure(driver, scope.result(), scope.call(), label_);
    for (auto& [handle, descriptor] : loaded_) descriptor.release();
  }
  loaded_.clear();
}

Result<void> LoadedPlan::prepare() const {
  KILN_TRY(make_ready());
  return {};
}

Result<void> LoadedPlan::run(CUstream_st* stream,
                             std::span<const TensorPointer> tensors,
                             WorkspaceMemory workspace) const {
  KILN_TRY(handles_->check_process());
  const ContextScope scope(context());
  KILN_TRY(scope.check(label_));
  KILN_TRY(check_stream(stream, scope.before()));
  const auto pointers = KILN_TRY(arrange_tensors(plan_, context(), tensors, label_));
  KILN_TRY(check_workspace(plan_, context(), workspace, label_));
  const Ready ready = KILN_TRY(ready_for(stream));
  KILN_TRY(fill(stream, workspace.pointer));
  return execute(ready, stream, pointers, workspace.pointer);
}

Result<void> LoadedPlan::check_stream(CUstream_st* stream, CUctx_st* before) const {
  const device::StreamFit fit = device::fit_of(context(), stream, before);
  KILN_TRY(
      driver_result(context().driver().table(), fit.result, "cuStreamGetCtx", label_));
  if (!fit.why_not.empty())
    return refuse("{}: {}", label_, fit.why_not);
  return {};
}

// Handles and plans are not created during a capture: cuDNN may allocate, copy, and
// wait for copies.
Result<LoadedPlan::Ready> LoadedPlan::ready_for(CUstream_st* stream) const {
  const CudnnHandle* const handle = handles_->find();
  if (handle != nullptr) {
    if (void* const plan = find(handle); plan != nullptr)
      return Ready{handle, plan};
  }
  if (KILN_TRY(device::is_capturing(context().driver().table(), stream, label_)))
    return refuse(
        "{}: a stream is being captured, and this thread has not loaded the plan: call "
        "prepare() on it before the capture",
        label_);
  return make_ready();
}

Result<LoadedPlan::Ready> LoadedPlan::make_ready() const {
  const CudnnHandle* const handle = KILN_TRY(handles_->get());
  if (void* const plan = find(handle); plan != nullptr)
    return Ready{handle, plan};
  // Does not disturb other captures.
  const RelaxedCapture relaxed(context().driver().table());
  const ContextScope scope(context());
  KILN_TRY(scope.check(label_));
  auto made = KILN_TRY(CudnnDescriptor::stored_plan(*handle, plan_.json, label_));
  void* const raw = made.raw();
  const MutexLock lock(mutex_);  // only this thread adds with this handle
  loaded_.emplace(handle, std::move(made));
  return Ready{handle, raw};
}

void* LoadedPlan::find(const CudnnHandle* handle) const {
  const MutexLock lock(mutex_);
  const auto found = loaded_.find(handle);
  return found == loaded_.end() ? nullptr : found->second.raw();
}

Result<void> LoadedPlan::fill(CUstream_st* stream, void* workspace) const {
  const DriverTable& driver = context().driver().table();
  for (const WorkspaceTensor& tensor : plan_.workspace) {
    const auto to = reinterpret_cast<CUdeviceptr>(at(workspace, tensor.offset));
    if (tensor.zero_bytes != 0)
      KILN_TRY(driver_result(driver,
                             driver.cuMemsetD8Async(to, 0, tensor.zero_bytes, stream),
                             "cuMemsetD8Async", label_));
    if (tensor.values.empty())
      continue;
    // A graph reads the values at each launch, so they live as long as this plan.
    const std::size_t bytes = tensor.values.size() * sizeof(float);
    KILN_TRY(driver_result(
        driver, driver.cuMemcpyHtoDAsync(to, tensor.values.data(), bytes, stream),
        "cuMemcpyHtoDAsync", label_));
  }
  return {};
}

Result<void> LoadedPlan::execute(const Ready& ready, CUstream_st* stream,
                                 std::span<void* const> tensors,
                                 void* workspace) const {
  std::vector<void*> pointers(tensors.begin(), tensors.end());
  for (const PlanScalar& scalar : plan_.scalars)
    pointers.push_back(const_cast<char*>(scalar.value.data()));  // cuDNN only reads it
  for (const WorkspaceTensor& tensor : plan_.workspace)
    pointers.push_back(at(workspace, tensor.offset));
  void* const engines_own =
      workspace == nullptr ? nullptr : at(workspace, plan_.graph_workspace_bytes);
  const auto pack = KILN_TRY(CudnnDescriptor::variant_pack(
      handles_->library(), ids_, pointers, engines_own, label_));
  const CudnnTable& table = handles_->library().table();
  const cudnn::Handle handle = ready.handle->raw();
  KILN_TRY(cudnn_result(table, table.cudnnSetStream(handle, stream), "cudnnSetStream",
                        label_));
  return cudnn_result(table, table.cudnnBackendExecute(handle, ready.plan, pack.raw()),
                      "cudnnBackendExecute", label_);
}

}  // namespace kiln::attention
