// Executable graphs: the nodes of a graph as they were, in an order that can be run.

#include <functional>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/capture.h"

using kiln::MutexLock;
using kiln::simulated::Process;

namespace {

CUresult instantiate(Simulator& simulator, CUgraphExec* executable, CUgraph graph,
                     cuuint64_t flags) {
  constexpr cuuint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  const Graph* const found = simulator.graphs.find(graph);
  if (found == nullptr || executable == nullptr || (flags & ~kKnown) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  auto steps = steps_of(simulator, graph);
  if (!steps)
    return CUDA_ERROR_INVALID_VALUE;
  hold(simulator, found->user_objects);
  *executable = simulator.graph_execs.add({.steps = *std::move(steps),
                                           .user_objects = found->user_objects,
                                           .flags = flags});
  return CUDA_SUCCESS;
}

/// What an update of `old` by `made` may not change.
CUgraphExecUpdateResult compare(const Step& old, const Step& made) {
  if (type_of(old.work) != type_of(made.work))
    return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  return old.after == made.after ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                 : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
}

CUgraphExecUpdateResultInfo update(GraphExec& executable, std::vector<Step> steps) {
  CUgraphExecUpdateResultInfo told{};
  if (steps.size() != executable.steps.size())
    told.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (std::size_t i = 0;
       i < steps.size() && told.result == CU_GRAPH_EXEC_UPDATE_SUCCESS; ++i) {
    told.result = compare(executable.steps[i], steps[i]);
    if (told.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      told.errorNode = steps[i].node;
  }
  if (told.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return told;
  for (std::size_t i = 0; i < steps.size(); ++i)
    executable.steps[i].work = std::move(steps[i].work);  // the nodes stay the old ones
  return told;
}

using Run = std::function<CUresult()>;
using Runs = std::vector<Run>;

/// Once more what a node does; null for one that does nothing. Errors: a launch's.
tl::expected<Run, CUresult> run_of(Simulator& simulator, const Work& work,
                                   CUstream stream) {
  if (const auto* const kernel = std::get_if<KernelWork>(&work))
    return prepare(simulator, *kernel, stream);
  if (const auto* const memory = std::get_if<MemoryWork>(&work))
    return [copied = *memory] {
      kiln::simulated::perform(copied);
      return CUDA_SUCCESS;
    };
  if (const auto* const host = std::get_if<HostWork>(&work))
    return [called = *host] {
      called.function(called.user);
      return CUDA_SUCCESS;
    };
  const auto* const event = std::get_if<EventWork>(&work);
  if (event == nullptr || !event->is_record)
    return nullptr;
  return [handle = event->event] {
    Process& all = kiln::simulated::process();
    const MutexLock lock(all.mutex);
    if (Event* const found = all.simulator.events.find(handle))
      kiln::simulated::record_now(*found);
    return CUDA_SUCCESS;
  };
}

CUresult prepare_all(Simulator& simulator, CUgraphExec executable, CUstream stream,
                     Runs& runs) {
  const GraphExec* const found = simulator.graph_execs.find(executable);
  const Stream* const on = simulator.stream(stream);
  if (found == nullptr || on == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (on->capture)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult refused = admit_work(simulator, *on); refused != CUDA_SUCCESS)
    return refused;
  for (const Step& step : found->steps) {
    auto run = run_of(simulator, step.work, stream);
    if (!run)
      return run.error();
    if (*run != nullptr)
      runs.push_back(*std::move(run));
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                     unsigned long long flags) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return instantiate(simulator, executable, graph, flags);
  });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* asked) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    if (asked == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = instantiate(simulator, executable, graph, asked->flags);
    asked->hErrNode_out = nullptr;
    asked->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                        : result == CUDA_ERROR_NOT_SUPPORTED
                            ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                            : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return result;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const GraphExec* const found = simulator.graph_execs.find(executable);
    if (found == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const auto held = found->user_objects;
    simulator.graph_execs.erase(executable);
    let_go(simulator, held);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecGetFlags(CUgraphExec executable, cuuint64_t* flags) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const GraphExec* const found = simulator.graph_execs.find(executable);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : answer(flags, found->flags);
  });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph,
                              CUgraphExecUpdateResultInfo* told) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    GraphExec* const found = simulator.graph_execs.find(executable);
    const Graph* const by = simulator.graphs.find(graph);
    if (found == nullptr || by == nullptr || told == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    auto steps = steps_of(simulator, graph);
    if (!steps)
      return CUDA_ERROR_INVALID_VALUE;
    *told = update(*found, *std::move(steps));
    if (told->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    hold(simulator, by->user_objects);
    let_go(simulator, std::exchange(found->user_objects, by->user_objects));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
  return enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    const bool is_good = simulator.graph_execs.find(executable) != nullptr &&
                         simulator.stream(stream) != nullptr;
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

// Every launch is checked and recorded before the first one is made.
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  Runs runs;
  CUresult result = enter(__func__, Needs::kContext, [&](Simulator& simulator) {
    return prepare_all(simulator, executable, stream, runs);
  });
  for (const Run& run : runs) {
    if (result == CUDA_SUCCESS)
      result = run();
  }
  return result;
}
