// Stream capture and the graphs that come of it. A graph here is a list of launches,
// copies and fills.

#include "tests/support/simulated_driver/capture.h"

#include <utility>

using kiln::simulated::Capture;
using kiln::simulated::enter;
using kiln::simulated::Graph;
using kiln::simulated::GraphNode;
using kiln::simulated::MemoryWork;
using kiln::simulated::Needs;
using kiln::simulated::Simulator;
using kiln::simulated::Stream;

namespace kiln::simulated {

namespace {

/// Calls `visit` with every captured stream that work in `stream` would wait for.
template <typename Visit>
void for_each_waited_for(Simulator& simulator, const Stream& stream,
                         const Visit& visit) {
  for_each_stream(simulator, [&](Stream& other) {
    const bool is_blocking = (other.flags & CU_STREAM_NON_BLOCKING) == 0;
    if (stream.is_legacy && other.context == stream.context && other.capture &&
        is_blocking)
      visit(other);
  });
}

}  // namespace

CUresult admit_work(Simulator& simulator, const Stream& stream) {
  if (stream.capture)
    return stream.capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                      : CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for_each_waited_for(simulator, stream, [&](Stream& captured) {
    captured.capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  });
  return result;
}

CUresult Simulator::check_not_capturing() {
  const CUstreamCaptureMode mode = thread().capture_mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for_each_stream(*this, [&](Stream& stream) {
    if (!stream.capture || stream.capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
      return;
    const bool is_own = stream.capture->origin == std::this_thread::get_id();
    const bool is_everybodys = mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                               stream.capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (is_own || is_everybodys) {
      stream.capture->is_invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  });
  return result;
}

}  // namespace kiln::simulated

namespace {

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture)
    return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Graph and dependencies of a capture are not told; who asks for them gets none.
CUresult get_info(const char* symbol, CUstream stream, CUstreamCaptureStatus* status,
                  cuuint64_t* id) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (status == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    *status = status_of(*found);
    if (id != nullptr && found->capture)
      *id = found->capture->id;
    CUresult result =
        CUDA_SUCCESS;  // of the legacy stream the question disturbs nobody
    kiln::simulated::for_each_waited_for(simulator, *found, [&](Stream&) {
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    });
    return result;
  });
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->is_legacy)
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (found->capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    found->capture = Capture{.mode = mode,
                             .origin = std::this_thread::get_id(),
                             .id = simulator.next_id(),
                             .is_invalid = false,
                             .nodes = {}};
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (graph == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    *graph = nullptr;
    if (!found->capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    if (found->capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        found->capture->origin != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    const Capture ended = *std::exchange(found->capture, std::nullopt);
    if (ended.is_invalid)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *graph = simulator.graphs.add({.nodes = ended.nodes});
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return get_info(__func__, stream, status, nullptr);
}

// The driver has its parameters. NOLINTBEGIN(readability-function-size)
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                   cuuint64_t* id, CUgraph*, const CUgraphNode**,
                                   std::size_t*) {
  return get_info(__func__, stream, status, id);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                   cuuint64_t* id, CUgraph*, const CUgraphNode**,
                                   const CUgraphEdgeData**, std::size_t*) {
  return get_info(__func__, stream, status, id);
}
// NOLINTEND(readability-function-size)

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (mode == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, simulator.thread().capture_mode);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return simulator.graphs.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

// Only the number: nodes have no handles here.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const Graph* const found = simulator.graphs.find(graph);
    if (found == nullptr || count == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (nodes != nullptr)
      return CUDA_ERROR_NOT_SUPPORTED;
    *count = found->nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                     unsigned long long /*flags*/) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const Graph* const found = simulator.graphs.find(graph);
    if (found == nullptr || executable == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    *executable = simulator.graph_execs.add(*found);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return simulator.graph_execs.erase(executable) ? CUDA_SUCCESS
                                                   : CUDA_ERROR_INVALID_VALUE;
  });
}

// Records its launches once more, on the stream that it goes to, and does its copies
// and fills again.
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const Graph* const found = simulator.graph_execs.find(executable);
    const Stream* const on = simulator.stream(stream);
    if (found == nullptr || on == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (on->capture)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (const CUresult refused = kiln::simulated::admit_work(simulator, *on);
        refused != CUDA_SUCCESS)
      return refused;
    for (const GraphNode& node : found->nodes) {
      if (const auto* const work = std::get_if<MemoryWork>(&node)) {
        kiln::simulated::perform(*work);
        continue;
      }
      auto each = std::get<kiln_simulated_launch>(node);
      each.stream = stream;
      each.is_captured = 0;
      each.is_repeated = 1;
      simulator.launches.push_back(each);
    }
    return CUDA_SUCCESS;
  });
}
