// Nodes by the kind of their work: added, and what they do told and changed.

#include <algorithm>
#include <array>

#include "tests/support/simulated_driver/abi_functions.h"

namespace kiln::simulated {

CUgraphNodeType type_of(const Work& work) {
  if (const auto* const memory = std::get_if<MemoryWork>(&work))
    return memory->from == 0 ? CU_GRAPH_NODE_TYPE_MEMSET : CU_GRAPH_NODE_TYPE_MEMCPY;
  if (const auto* const event = std::get_if<EventWork>(&work))
    return event->is_record ? CU_GRAPH_NODE_TYPE_EVENT_RECORD
                            : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  constexpr std::array kTypes{CU_GRAPH_NODE_TYPE_EMPTY,  CU_GRAPH_NODE_TYPE_KERNEL,
                              CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST,
                              CU_GRAPH_NODE_TYPE_EMPTY,  CU_GRAPH_NODE_TYPE_GRAPH};
  return kTypes[work.index()];
}

}  // namespace kiln::simulated

namespace {

using Made = tl::expected<Work, CUresult>;

/// Where a node goes.
struct Spot {
  CUgraphNode* node = nullptr;
  CUgraph graph = nullptr;
  const CUgraphNode* after = nullptr;
  std::size_t count = 0;
};

/// A node of the work that `make(simulator)` returns.
template <typename Make>
CUresult add(const char* symbol, const Spot& spot, const Make& make) {
  return enter(symbol, Needs::kContext, [&](Simulator& simulator) {
    if (spot.node == nullptr || simulator.graphs.find(spot.graph) == nullptr ||
        !are_nodes_of(simulator, spot.graph, spot.after, spot.count))
      return CUDA_ERROR_INVALID_VALUE;
    Made made = make(simulator);
    if (!made)
      return made.error();
    *spot.node = add_node(simulator, spot.graph, *std::move(made),
                          {spot.after, spot.after + spot.count});
    return CUDA_SUCCESS;
  });
}

/// What the driver's own words for work mean. `Parameters` is the pointer of a program.
template <typename Parameters>
Made work_of(const Simulator& simulator, const Parameters* asked) {
  if (asked == nullptr)
    return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
  const auto made = kiln::simulated::work_of(simulator, *asked);
  return made ? Made(*made) : tl::unexpected(made.error());
}

Made work_of(Simulator& simulator, const CUDA_KERNEL_NODE_PARAMS_v2* asked) {
  if (asked == nullptr)
    return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
  const auto function =
      asked->func != nullptr ? asked->func : reinterpret_cast<CUfunction>(asked->kern);
  const auto made = kiln::simulated::check_and_keep(
      simulator, {.function = function,
                  .grid = {asked->gridDimX, asked->gridDimY, asked->gridDimZ},
                  .block = {asked->blockDimX, asked->blockDimY, asked->blockDimZ},
                  .dynamic_shared_bytes = asked->sharedMemBytes,
                  .parameters = asked->kernelParams,
                  .extra = asked->extra});
  return made ? Made(*made) : tl::unexpected(made.error());
}

Made work_of(Simulator& simulator, CUevent event, bool is_record) {
  if (simulator.events.find(event) == nullptr)
    return tl::unexpected(CUDA_ERROR_INVALID_HANDLE);
  return EventWork{.event = event, .is_record = is_record};
}

/// `tell(work)` for a node with work of that kind.
template <typename Kind, typename Tell>
CUresult ask(const char* symbol, CUgraphNode node, const void* out, const Tell& tell) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    GraphNode* const found = simulator.graph_nodes.find(node);
    Kind* const work = found == nullptr ? nullptr : std::get_if<Kind>(&found->work);
    return work == nullptr || out == nullptr ? CUDA_ERROR_INVALID_VALUE : tell(*work);
  });
}

CUresult change(Simulator& simulator, Work& work,
                const CUDA_KERNEL_NODE_PARAMS_v2* asked) {
  if (!std::holds_alternative<KernelWork>(work))
    return CUDA_ERROR_INVALID_VALUE;
  Made made = work_of(simulator, asked);
  if (!made)
    return made.error();
  work = *std::move(made);
  return CUDA_SUCCESS;
}

CUresult get_event(const char* symbol, CUgraphNode node, CUevent* event,
                   bool is_record) {
  return ask<EventWork>(symbol, node, event, [&](const EventWork& work) {
    return work.is_record == is_record ? answer(event, work.event)
                                       : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph,
                                 const CUgraphNode* after, std::size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS_v2* asked) {
  return add(__func__, {node, graph, after, count},
             [&](Simulator& simulator) { return work_of(simulator, asked); });
}

// The driver has its parameters. NOLINTBEGIN(readability-function-size)
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph,
                              const CUgraphNode* after, std::size_t count,
                              const CUDA_MEMCPY3D* asked, CUcontext /*context*/) {
  return add(__func__, {node, graph, after, count},
             [&](const Simulator& simulator) { return work_of(simulator, asked); });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph,
                              const CUgraphNode* after, std::size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* asked,
                              CUcontext /*context*/) {
  return add(__func__, {node, graph, after, count},
             [&](const Simulator& simulator) { return work_of(simulator, asked); });
}
// NOLINTEND(readability-function-size)

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                            std::size_t count, const CUDA_HOST_NODE_PARAMS* asked) {
  return add(__func__, {node, graph, after, count}, [&](const Simulator&) -> Made {
    if (asked == nullptr || asked->fn == nullptr)
      return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
    return HostWork{.function = asked->fn, .user = asked->userData};
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                             std::size_t count) {
  return add(__func__, {node, graph, after, count},
             [](const Simulator&) -> Made { return EmptyWork{}; });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph,
                                  const CUgraphNode* after, std::size_t count,
                                  CUgraph child) {
  return add(__func__, {node, graph, after, count}, [&](Simulator& simulator) -> Made {
    if (simulator.graphs.find(child) == nullptr || child == graph)
      return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
    const CUgraph own = clone_graph(simulator, child);
    simulator.graphs.find(own)->is_child = true;
    return ChildWork{.graph = own};
  });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph,
                                   const CUgraphNode* after, std::size_t count,
                                   CUevent event) {
  return add(__func__, {node, graph, after, count},
             [&](Simulator& simulator) { return work_of(simulator, event, true); });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph,
                                 const CUgraphNode* after, std::size_t count,
                                 CUevent event) {
  return add(__func__, {node, graph, after, count},
             [&](Simulator& simulator) { return work_of(simulator, event, false); });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  return ask<ChildWork>(__func__, node, graph, [&](const ChildWork& work) {
    return answer(graph, work.graph);
  });
}

// The parameters are the node's own, until it is changed.
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                       CUDA_KERNEL_NODE_PARAMS_v2* told) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    GraphNode* const found = simulator.graph_nodes.find(node);
    auto* const work =
        found == nullptr ? nullptr : std::get_if<KernelWork>(&found->work);
    if (work == nullptr || told == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const Request& request = work->request;
    const auto kernel = reinterpret_cast<CUkernel>(request.function);
    const bool is_kernel = simulator.kernels.find(kernel) != nullptr;
    *told = {.func = is_kernel ? nullptr : request.function,
             .gridDimX = request.grid[0],
             .gridDimY = request.grid[1],
             .gridDimZ = request.grid[2],
             .blockDimX = request.block[0],
             .blockDimY = request.block[1],
             .blockDimZ = request.block[2],
             .sharedMemBytes = request.dynamic_shared_bytes,
             .kernelParams = work->parameters(),
             .extra = nullptr,
             .kern = is_kernel ? kernel : nullptr,
             .ctx = nullptr};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS_v2* asked) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    GraphNode* const found = simulator.graph_nodes.find(node);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE
                            : change(simulator, found->work, asked);
  });
}

// Of the node as it was in the graph when that was instantiated.
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* asked) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    auto* const found = simulator.graph_execs.find(executable);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const auto step = std::find_if(found->steps.begin(), found->steps.end(),
                                   [&](const Step& each) { return each.node == node; });
    return step == found->steps.end() ? CUDA_ERROR_INVALID_VALUE
                                      : change(simulator, step->work, asked);
  });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* told) {
  return ask<MemoryWork>(__func__, node, told, [&](const MemoryWork& work) {
    if (work.from == 0)
      return CUDA_ERROR_INVALID_VALUE;
    const auto rows = [](const auto& pitch) {
      return pitch.row == 0 ? 0 : pitch.slice / pitch.row;
    };
    *told = {};
    told->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    told->srcDevice = work.from;
    told->srcPitch = work.from_pitch.row;
    told->srcHeight = rows(work.from_pitch);
    told->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    told->dstDevice = work.to;
    told->dstPitch = work.to_pitch.row;
    told->dstHeight = rows(work.to_pitch);
    told->WidthInBytes = work.width;
    told->Height = work.height;
    told->Depth = work.depth;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* told) {
  return ask<MemoryWork>(__func__, node, told, [&](const MemoryWork& work) {
    if (work.from != 0)
      return CUDA_ERROR_INVALID_VALUE;
    *told = {.dst = work.to,
             .pitch = work.to_pitch.row,
             .value = work.value,
             .elementSize = work.value_bytes,
             .width = work.width / work.value_bytes,
             .height = work.height};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* told) {
  return ask<HostWork>(__func__, node, told, [&](const HostWork& work) {
    *told = {.fn = work.function, .userData = work.user};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(__func__, node, event, true);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(__func__, node, event, false);
}
