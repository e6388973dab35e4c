// Events: the time at which they were recorded.

#include <chrono>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"

namespace {

CUresult elapsed(const char* symbol, float* milliseconds, CUevent start, CUevent end) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    const Event* const first = simulator.events.find(start);
    const Event* const second = simulator.events.find(end);
    if (first == nullptr || second == nullptr || first->recorded_ns < 0 ||
        second->recorded_ns < 0 ||
        ((first->flags | second->flags) & CU_EVENT_DISABLE_TIMING) != 0)
      return CUDA_ERROR_INVALID_HANDLE;
    const std::int64_t nanoseconds = second->recorded_ns - first->recorded_ns;
    return answer(milliseconds, static_cast<float>(nanoseconds) / 1e6F);
  });
}

CUresult check(const char* symbol, CUevent event) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    const Event* const found = simulator.events.find(event);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    return found->captured.capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
  });
}

CUresult record(const char* symbol, CUevent event, CUstream stream, unsigned flags) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    Event* const found = simulator.events.find(event);
    Stream* const on = simulator.stream(stream);
    if (flags > CU_EVENT_RECORD_EXTERNAL)
      return CUDA_ERROR_INVALID_VALUE;
    if (found == nullptr || on == nullptr || on->context != found->context)
      return CUDA_ERROR_INVALID_HANDLE;
    if (on->capture && on->capture->is_invalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (on->capture && flags == CU_EVENT_RECORD_EXTERNAL)
      add_captured(simulator, *on, EventWork{.event = event, .is_record = true});
    else if (on->capture)
      found->captured = {on->capture, on->front};
    else
      kiln::simulated::record_now(*found);
    return CUDA_SUCCESS;
  });
}

}  // namespace

void kiln::simulated::record_now(Event& event) {
  event.captured = {};
  event.recorded_ns = std::chrono::steady_clock::now().time_since_epoch().count();
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (event == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    *event =
        simulator.events.add({.context = simulator.current_handle(), .flags = flags});
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return simulator.events.erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return record(__func__, event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return record(__func__, event, stream, flags);
}

CUresult cuEventSynchronize(CUevent event) {
  return check(__func__, event);
}

CUresult cuEventQuery(CUevent event) {
  return check(__func__, event);
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(__func__, milliseconds, start, end);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(__func__, milliseconds, start, end);
}
