// Streams. Work is done when it is asked for, so none has ever anything to wait for.

#include "tests/support/simulated_driver/capture.h"
#include "tests/support/simulated_driver/simulator.h"

using kiln::simulated::enter;
using kiln::simulated::Needs;
using kiln::simulated::Simulator;
using kiln::simulated::Stream;

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

CUresult create(const char* symbol, CUstream* stream, unsigned flags, int priority) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING)
      return CUDA_ERROR_INVALID_VALUE;
    *stream = simulator.streams.add({.context = simulator.current_handle(),
                                     .flags = flags,
                                     .priority = priority,
                                     .id = simulator.next_id(),
                                     .capture = {}});
    return CUDA_SUCCESS;
  });
}

/// `get(stream)` into `out`, for the calls that only ask.
template <typename Value, typename Get>
CUresult ask(const char* symbol, CUstream stream, Value* out, const Get& get) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    const Stream* const found = simulator.stream(stream);
    if (out == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    *out = get(*found);
    return CUDA_SUCCESS;
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
    return kiln::simulated::admit_work(simulator, *found);
  });
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
    return simulator.streams.erase(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return ask(__func__, stream, context,
             [](const Stream& each) { return each.context; });
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

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned /*flags*/) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const bool is_known =
        simulator.stream(stream) != nullptr && simulator.events.find(event) != nullptr;
    return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
