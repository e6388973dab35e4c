// Streams. Work is done when it is asked for, so none has ever anything to wait for.

#include <algorithm>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"

namespace kiln::simulated {

Stream* Simulator::stream(CUstream handle) {
  const CUcontext here = current_handle();
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    Stream& legacy = legacy_streams[here];
    legacy.context = here;
    legacy.is_legacy = true;
    return &legacy;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    Stream& own = thread_streams[{here, std::this_thread::get_id()}];
    own.context = here;
    return &own;
  }
  return streams.find(handle);
}

}  // namespace kiln::simulated

namespace {

// A priority that no stream has becomes the nearest one.
CUresult create(const char* symbol, CUstream* stream, unsigned flags, int priority) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING)
      return CUDA_ERROR_INVALID_VALUE;
    *stream = simulator.streams.add({.context = simulator.current_handle(),
                                     .flags = flags,
                                     .priority = std::clamp(priority, -5, 0),
                                     .id = simulator.next_id()});
    return CUDA_SUCCESS;
  });
}

/// `get(stream)` into `out`, for the calls that only ask.
template <typename Value, typename Get>
CUresult ask(const char* symbol, CUstream stream, Value* out, const Get& get) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    const Stream* const found = simulator.stream(stream);
    return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : answer(out, get(*found));
  });
}

// A stream that is captured has no work to wait for: asking ends the capture.
CUresult wait(const char* symbol, CUstream stream) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture) {
      found->capture->is_invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (const CUresult lost = simulator.contexts.find(found->context)->lost;
        lost != CUDA_SUCCESS)
      return lost;
    return admit_work(simulator, *found);
  });
}

CUresult join(Stream& stream, const Front& before) {
  if (stream.is_legacy)
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream.capture && stream.capture != before.capture) {
    stream.capture->is_invalid = true;
    before.capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (before.capture->is_invalid)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  kiln::simulated::follow(stream, before);
  return CUDA_SUCCESS;
}

// Like a kernel's stand-in it runs before the call returns.
CUresult call(const char* symbol, CUstream stream, CUhostFn function, void* user) {
  bool is_captured = false;
  const CUresult result = enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (function == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const CUresult refused = admit_work(simulator, *found);
    is_captured = found->capture != nullptr;
    if (refused == CUDA_SUCCESS && is_captured)
      add_captured(simulator, *found, HostWork{.function = function, .user = user});
    return refused;
  });
  if (result == CUDA_SUCCESS && !is_captured)
    function(user);
  return result;
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return create(__func__, stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return create(__func__, stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    Stream* const found = simulator.streams.find(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->is_origin) {
      found->capture->is_invalid = true;
      end_capture(simulator, found->capture);
    }
    simulator.streams.erase(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return ask(__func__, stream, context,
             [](const Stream& each) { return each.context; });
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr)
    *green = nullptr;
  return ask(__func__, stream, context,
             [](const Stream& each) { return each.context; });
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const Stream* const found = simulator.stream(stream);
    return found == nullptr
               ? CUDA_ERROR_INVALID_HANDLE
               : answer(device, simulator.device_of(found->context).ordinal);
  });
}

CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return ask(__func__, stream, flags, [](const Stream& each) { return each.flags; });
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return ask(__func__, stream, priority,
             [](const Stream& each) { return each.priority; });
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return ask(__func__, stream, id, [](const Stream& each) { return each.id; });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return wait(__func__, stream);
}

CUresult cuStreamQuery(CUstream stream) {
  return wait(__func__, stream);
}

// In a capture an event is a place in it: who waits for it takes part.
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    const Event* const waited_for = simulator.events.find(event);
    if (found == nullptr || waited_for == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const Front& before = waited_for->captured;
    if (before.capture && !before.capture->has_ended)
      return join(*found, before);
    if (!found->capture || waited_for->recorded_ns < 0)
      return CUDA_SUCCESS;
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
      add_captured(simulator, *found, EventWork{.event = event, .is_record = false});
      return CUDA_SUCCESS;
    }
    found->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  });
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user) {
  return call(__func__, stream, function, user);
}

CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void* user,
                             unsigned /*mode*/) {
  return call(__func__, stream, function, user);
}

// A graph does not have such a call.
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* user,
                             unsigned flags) {
  const CUresult result = enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (function == nullptr || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture) {
      found->capture->is_invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return admit_work(simulator, *found);
  });
  if (result == CUDA_SUCCESS)
    function(stream, CUDA_SUCCESS, user);
  return result;
}
