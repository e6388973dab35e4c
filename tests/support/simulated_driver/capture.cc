// Stream capture. Several streams can take part in one, by way of events.

#include "tests/support/simulated_driver/capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/support/simulated_driver/abi_functions.h"

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

void add_captured(Simulator& simulator, Stream& stream, Work work) {
  if (simulator.graphs.find(stream.capture->graph) == nullptr) {
    stream.capture->is_invalid = true;  // the program destroyed it
    return;
  }
  stream.front = {
      add_node(simulator, stream.capture->graph, std::move(work), stream.front)};
}

void follow(Stream& stream, const Front& before) {
  stream.capture = before.capture;
  for (const CUgraphNode node : before.nodes) {
    if (std::find(stream.front.begin(), stream.front.end(), node) == stream.front.end())
      stream.front.push_back(node);
  }
}

CUgraph end_capture(Simulator& simulator, std::shared_ptr<Capture> capture) {
  capture->has_ended = true;
  for_each_stream(simulator, [&](Stream& each) {
    if (each.capture != capture)
      return;
    each.capture = nullptr;
    each.front.clear();
    each.is_origin = false;
  });
  const bool has_graph = simulator.graphs.find(capture->graph) != nullptr;
  if (!capture->is_invalid && has_graph)
    return capture->graph;
  if (capture->is_graph_new && has_graph)
    destroy_graph(simulator, capture->graph);
  return nullptr;
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

/// What a stream tells of its capture. Null for what nobody asks.
struct Info {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  std::size_t* count = nullptr;
};

void tell(Stream& stream, const Info& out) {
  if (out.id != nullptr)
    *out.id = stream.capture->id;
  if (out.graph != nullptr)
    *out.graph = stream.capture->graph;
  if (out.nodes != nullptr)
    *out.nodes = stream.front.data();
  stream.edges.assign(stream.front.size(), {});
  if (out.edges != nullptr)
    *out.edges = stream.edges.data();
  if (out.count != nullptr)
    *out.count = stream.front.size();
}

CUresult get_info(const char* symbol, CUstream stream, const Info& out) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (out.status == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    *out.status = status_of(*found);
    if (found->capture)
      tell(*found, out);
    CUresult result =
        CUDA_SUCCESS;  // of the legacy stream the question disturbs nobody
    kiln::simulated::for_each_waited_for(simulator, *found, [&](Stream&) {
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    });
    return result;
  });
}

/// Where a capture goes: to an existing graph, after those nodes; or to a new one.
struct Target {
  const CUgraph* graph = nullptr;
  const CUgraphNode* after = nullptr;
  std::size_t count = 0;
};

CUresult begin(const char* symbol, CUstream stream, CUstreamCaptureMode mode,
               const Target& target) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (found->is_legacy)
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (found->capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    if (target.graph != nullptr &&
        (simulator.graphs.find(*target.graph) == nullptr ||
         !are_nodes_of(simulator, *target.graph, target.after, target.count)))
      return CUDA_ERROR_INVALID_VALUE;
    found->capture = std::make_shared<Capture>(Capture{
        .mode = mode,
        .origin = std::this_thread::get_id(),
        .id = simulator.next_id(),
        .graph = target.graph == nullptr ? simulator.graphs.add({}) : *target.graph,
        .is_graph_new = target.graph == nullptr});
    found->front.assign(target.after, target.after + target.count);
    found->is_origin = true;
    return CUDA_SUCCESS;
  });
}

/// True if the stream that ends the capture waits for all that others did in it.
bool is_joined(Simulator& simulator, const Stream& origin) {
  std::set<CUgraphNode> waited_for(origin.front.begin(), origin.front.end());
  std::vector<CUgraphNode> rest = origin.front;
  while (!rest.empty()) {
    const CUgraphNode node = rest.back();
    rest.pop_back();
    const auto* const found = simulator.graph_nodes.find(node);
    for (const CUgraphNode before :
         found == nullptr ? std::vector<CUgraphNode>{} : found->after) {
      if (waited_for.insert(before).second)
        rest.push_back(before);
    }
  }
  bool is_all = true;
  for_each_stream(simulator, [&](const Stream& other) {
    for (const CUgraphNode node : other.front)
      is_all = is_all && (other.capture != origin.capture || waited_for.contains(node));
  });
  return is_all;
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(__func__, stream, mode, {});
}

// The driver has its parameters. NOLINTBEGIN(readability-function-size)
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode* after,
                                     const CUgraphEdgeData* /*edges*/,
                                     std::size_t count, CUstreamCaptureMode mode) {
  return begin(__func__, stream, mode, {&graph, after, count});
}

// `graph` may be null: who asked for the capture's graph has it.
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (graph != nullptr)
      *graph = nullptr;
    if (!found->capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    const std::shared_ptr<Capture> capture = found->capture;
    if (!found->is_origin)
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->origin != std::this_thread::get_id())
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    const bool was_invalid = capture->is_invalid;
    capture->is_invalid = was_invalid || !is_joined(simulator, *found);
    const CUgraph ended = end_capture(simulator, capture);
    if (ended == nullptr)
      return was_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                         : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (graph != nullptr)
      *graph = ended;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return get_info(__func__, stream, {.status = status});
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                   cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, std::size_t* count) {
  return get_info(
      __func__, stream,
      {.status = status, .id = id, .graph = graph, .nodes = nodes, .count = count});
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                   cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  return get_info(__func__, stream, {status, id, graph, nodes, edges, count});
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData* /*edges*/,
                                              std::size_t count, unsigned flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    Stream* const found = simulator.stream(stream);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (!found->capture)
      return CUDA_ERROR_ILLEGAL_STATE;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES ||
        !are_nodes_of(simulator, found->capture->graph, nodes, count))
      return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
      found->front.clear();
    follow(*found, {found->capture, {nodes, nodes + count}});
    return CUDA_SUCCESS;
  });
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
