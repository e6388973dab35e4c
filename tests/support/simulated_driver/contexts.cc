// Contexts: made and unmade here, and each thread's stack of them.

#include "tests/support/simulated_driver/abi_functions.h"

namespace kiln::simulated {

tl::expected<CUcontext, CUresult> Simulator::open_context(int device, unsigned flags,
                                                          bool is_primary) {
  Device& owner = devices[static_cast<std::size_t>(device)];
  const Context made{.device = device,
                     .flags = flags,
                     .is_primary = is_primary,
                     .is_active = true,
                     .lost = CUDA_SUCCESS,
                     .id = next_id()};
  CUcontext handle = is_primary ? owner.primary : nullptr;
  if (handle == nullptr)
    handle = contexts.add(made);
  else
    *contexts.find(handle) = made;
  if (is_primary)
    owner.primary = handle;
  if (!settings.is_eager)
    return handle;
  // An eager library is in every context that there will be, too.
  std::vector<CUlibrary> present;
  libraries.for_each(
      [&](CUlibrary library, const Library&) { present.push_back(library); });
  for (const CUlibrary library : present) {
    const auto module = module_in(library, handle);
    if (!module) {
      close_context(handle);
      return tl::unexpected(module.error().result);
    }
  }
  return handle;
}

void Simulator::close_context(CUcontext context) {
  std::vector<CUmodule> inside;
  modules.for_each([&](CUmodule handle, const Module& module) {
    if (module.context == context)
      inside.push_back(handle);
  });
  for (const CUmodule module : inside) unload(module);
  const auto is_inside = [&](const auto& each) { return each.context == context; };
  streams.erase_if(is_inside);
  events.erase_if(is_inside);
  legacy_streams.erase(context);
  std::erase_if(thread_streams,
                [&](const auto& each) { return each.first.first == context; });
  std::vector<CUdeviceptr> memory;
  for (const auto& [pointer, allocation] : allocations) {
    if (allocation.context == context)
      memory.push_back(pointer);
  }
  for (const CUdeviceptr pointer : memory) free(pointer);
  if (contexts.find(context)->is_primary)
    contexts.find(context)->is_active = false;
  else
    contexts.erase(context);
}

}  // namespace kiln::simulated

namespace {

CUresult create(const char* symbol, CUcontext* context, unsigned flags,
                CUdevice ordinal) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    if (context == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (simulator.device(ordinal) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    const auto made = simulator.open_context(ordinal, flags, false);
    if (!made)
      return made.error();
    simulator.thread().stack.push_back(*made);
    *context = *made;
    return CUDA_SUCCESS;
  });
}

/// Of the current context where that is null.
CUresult get_device(const char* symbol, CUcontext context, CUdevice* device) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    const CUcontext asked = context == nullptr ? simulator.current_handle() : context;
    if (asked == nullptr)
      return CUDA_ERROR_INVALID_CONTEXT;
    const Context* const found = simulator.contexts.find(asked);
    return found == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                            : answer(device, found->device);
  });
}

}  // namespace

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice ordinal) {
  return create(__func__, context, flags, ordinal);
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* /*affinities*/,
                        int count, unsigned flags, CUdevice ordinal) {
  if (count != 0)
    return enter(__func__, Needs::kDriver,
                 [](Simulator&) { return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY; });
  return create(__func__, context, flags, ordinal);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters,
                        unsigned flags, CUdevice ordinal) {
  const bool is_for_graphics =
      parameters != nullptr && parameters->cigParams != nullptr;
  if (is_for_graphics ||
      (parameters != nullptr && parameters->numExecAffinityParams != 0))
    return enter(__func__, Needs::kDriver, [&](Simulator&) {
      return is_for_graphics ? CUDA_ERROR_NOT_SUPPORTED
                             : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    });
  return create(__func__, context, flags, ordinal);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const Context* const found = simulator.contexts.find(context);
    if (found == nullptr || found->is_primary)
      return CUDA_ERROR_INVALID_CONTEXT;
    simulator.close_context(context);
    // Only where it is on top of this thread's stack; elsewhere it stays, destroyed.
    if (simulator.current_handle() == context)
      simulator.thread().stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (!simulator.is_active(context))
      return CUDA_ERROR_INVALID_CONTEXT;
    simulator.thread().stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    auto& stack = simulator.thread().stack;
    if (stack.empty())
      return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr)
      *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (context != nullptr && !simulator.is_active(context))
      return CUDA_ERROR_INVALID_CONTEXT;
    auto& stack = simulator.thread().stack;
    if (!stack.empty())
      stack.pop_back();
    if (context != nullptr)
      stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return answer(context, simulator.current_handle());
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return get_device(__func__, nullptr, device);
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  return get_device(__func__, context, device);
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return answer(flags, simulator.current()->flags);
  });
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const CUcontext asked = context == nullptr ? simulator.current_handle() : context;
    if (!simulator.is_active(asked))
      return asked == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                              : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return answer(id, simulator.contexts.find(asked)->id);
  });
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (version == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.is_active(context))
      return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;  // what drivers say of every context
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return enter(__func__, Needs::kContext, [&](Simulator&) {
    if (least != nullptr)
      *least = 0;
    if (greatest != nullptr)
      *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return enter(__func__, Needs::kContext,
               [](Simulator& simulator) { return simulator.check_not_capturing(); });
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const CUcontext asked = context == nullptr ? simulator.current_handle() : context;
    if (!simulator.is_active(asked))
      return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult lost = simulator.contexts.find(asked)->lost;
    return lost == CUDA_SUCCESS ? simulator.check_not_capturing() : lost;
  });
}
