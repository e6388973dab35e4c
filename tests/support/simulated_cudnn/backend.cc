// Descriptors: the real cuDNN's, and what is to be known of them besides.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/simulated_cudnn/abi.h"
#include "tests/support/simulated_cudnn/simulator.h"
#include "util/base64.h"

namespace kiln::simulated {
namespace {

constexpr int kExecutionFailedCudaDriver = 5001;

/// What the real cuDNN is told of a device, once for each.
Status describe(CUdevice device, Descriptor& out) {
  CudnnSimulator& all = simulator();
  const auto& [driver, cudnn] = libraries();
  const MutexLock lock(all.mutex);
  Descriptor& made = all.properties[device];
  if (made == nullptr) {
    const std::string json = properties_of(driver, device);
    Status status =
        cudnn.cudnnBackendCreateDescriptor(DescriptorKind::kDeviceProperties, &made);
    if (status == Status::kSuccess)
      status = cudnn.cudnnBackendSetAttribute(
          made, Attribute::kDevicePropertiesJson, AttributeType::kChar,
          static_cast<std::int64_t>(json.size()), json.data());
    if (status == Status::kSuccess)
      status = cudnn.cudnnBackendFinalize(made);
    if (status != Status::kSuccess)
      return status;
  }
  out = made;
  return Status::kSuccess;
}

Status set_handle(Descriptor plan, const void* values) {
  const Handle handle = *static_cast<const Handle*>(values);
  CUdevice device = -1;
  {
    CudnnSimulator& all = simulator();
    const MutexLock lock(all.mutex);
    const auto found = all.handles.find(handle);
    if (found != all.handles.end()) {
      device = found->second.device;
      all.plans[plan].handle = handle;
      all.plans[plan].context = found->second.context;
    }
  }
  if (device < 0)
    return refuse(kBadParam, "no such handle");
  Descriptor properties = nullptr;
  if (const Status status = describe(device, properties); status != Status::kSuccess)
    return status;
  return libraries().cudnn.cudnnBackendSetAttribute(
      plan, Attribute::kPlanDeviceProperties, AttributeType::kDescriptor, 1,
      &properties);
}

// Of a plan or a pack; those of others are the real cuDNN's affair alone.
void remember(Descriptor descriptor, Attribute name, std::size_t count,
              const void* values) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  if (const auto plan = all.plans.find(descriptor);
      plan != all.plans.end() && name == Attribute::kPlanJson)
    plan->second.json.assign(static_cast<const char*>(values), count);
  const auto pack = all.packs.find(descriptor);
  if (pack == all.packs.end())
    return;
  if (name == Attribute::kPackIds) {
    const auto* const ids = static_cast<const std::int64_t*>(values);
    pack->second.ids.assign(ids, ids + count);
  } else if (name == Attribute::kPackPointers) {
    const auto* const pointers = static_cast<void* const*>(values);
    pack->second.pointers.assign(pointers, pointers + count);
  } else if (name == Attribute::kPackWorkspace) {
    pack->second.workspace = *static_cast<void* const*>(values);
  }
}

std::optional<PlanState> plan_of(Descriptor descriptor) {
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  const auto found = all.plans.find(descriptor);
  return found == all.plans.end() ? std::nullopt : std::optional(found->second);
}

void unload(const std::vector<LoadedCubin>& kernels) {
  for (const LoadedCubin& each : kernels)
    static_cast<void>(libraries().driver.cuModuleUnload(each.module));
}

// Into the handle's context, which is current.
CUresult load(const std::string& text, std::vector<LoadedCubin>& kernels) {
  const auto& driver = libraries().driver;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  for (const auto& kernel : json.at("engine").at("payload").at("kernels")) {
    const auto cubin = decode_base64(kernel.at("cubin").get<std::string>());
    const auto name = kernel.at("kernelName").get<std::string>();
    if (!cubin)
      return CUDA_ERROR_INVALID_IMAGE;
    LoadedCubin made;
    CUresult result = driver.cuModuleLoadData(&made.module, cubin->data());
    if (result != CUDA_SUCCESS)
      return result;
    kernels.push_back(made);
    result =
        driver.cuModuleGetFunction(&kernels.back().function, made.module, name.c_str());
    if (result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

Status finalize_plan(Descriptor descriptor, const PlanState& plan) {
  {
    CudnnSimulator& all = simulator();
    const MutexLock lock(all.mutex);
    ++all.plans_loaded;
  }
  if (plan.handle == nullptr) {
    std::fputs("simulated cuDNN: a plan is finalised without a handle\n", stderr);
    std::abort();
  }
  const auto& [driver, cudnn] = libraries();
  if (const Status status = cudnn.cudnnBackendFinalize(descriptor);
      status != Status::kSuccess)
    return status;
  std::vector<LoadedCubin> kernels;
  CUresult result = driver.cuCtxPushCurrent(plan.context);
  if (result == CUDA_SUCCESS) {
    result = load(plan.json, kernels);
    if (result != CUDA_SUCCESS)
      unload(kernels);
    static_cast<void>(driver.cuCtxPopCurrent(nullptr));
  }
  if (result != CUDA_SUCCESS)
    return refuse(
        kExecutionFailedCudaDriver,
        fmt::format("cuLibraryLoadData returned error ({})", static_cast<int>(result)));
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  all.plans[descriptor].kernels = kernels;
  all.plans[descriptor].is_final = true;
  return Status::kSuccess;
}

}  // namespace

Status cudnnBackendCreateDescriptor(DescriptorKind kind, Descriptor* descriptor) {
  if (const auto instead = injected(__func__))
    return *instead;
  const Status status =
      libraries().cudnn.cudnnBackendCreateDescriptor(kind, descriptor);
  if (status != Status::kSuccess)
    return status;
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  if (kind == DescriptorKind::kExecutionPlan)
    all.plans[*descriptor] = {};
  if (kind == DescriptorKind::kVariantPack)
    all.packs[*descriptor] = {};
  return status;
}

Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  if (const auto plan = plan_of(descriptor)) {
    const auto& driver = libraries().driver;
    if (plan->context != nullptr &&
        driver.cuCtxPushCurrent(plan->context) == CUDA_SUCCESS) {
      unload(plan->kernels);
      static_cast<void>(driver.cuCtxPopCurrent(nullptr));
    }
  }
  {
    CudnnSimulator& all = simulator();
    const MutexLock lock(all.mutex);
    all.plans.erase(descriptor);
    all.packs.erase(descriptor);
  }
  return libraries().cudnn.cudnnBackendDestroyDescriptor(descriptor);
}

Status cudnnBackendSetAttribute(Descriptor descriptor, Attribute name,
                                AttributeType type, std::int64_t count,
                                const void* values) {
  if (const auto instead = injected(__func__))
    return *instead;
  if (name == Attribute::kPlanHandle)
    return set_handle(descriptor, values);
  remember(descriptor, name, static_cast<std::size_t>(count), values);
  return libraries().cudnn.cudnnBackendSetAttribute(descriptor, name, type, count,
                                                    values);
}

// The driver has its parameters. NOLINTNEXTLINE(readability-function-size)
Status cudnnBackendGetAttribute(Descriptor descriptor, Attribute name,
                                AttributeType type, std::int64_t room,
                                std::int64_t* count, void* values) {
  return libraries().cudnn.cudnnBackendGetAttribute(descriptor, name, type, room, count,
                                                    values);
}

Status cudnnBackendFinalize(Descriptor descriptor) {
  if (const auto instead = injected(__func__))
    return *instead;
  if (const auto plan = plan_of(descriptor))
    return finalize_plan(descriptor, *plan);
  const Status status = libraries().cudnn.cudnnBackendFinalize(descriptor);
  CudnnSimulator& all = simulator();
  const MutexLock lock(all.mutex);
  if (const auto pack = all.packs.find(descriptor);
      pack != all.packs.end() && status == Status::kSuccess)
    pack->second.is_final = true;
  return status;
}

}  // namespace kiln::simulated
