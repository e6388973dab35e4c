// Graphs: what they are made of and how it hangs together. Edges carry no data here.

#include "tests/support/simulated_driver/graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "tests/support/simulated_driver/abi_functions.h"

namespace kiln::simulated {

CUgraphNode add_node(Simulator& simulator, CUgraph graph, Work work,
                     std::vector<CUgraphNode> after) {
  const CUgraphNode node = simulator.graph_nodes.add(
      {.graph = graph, .work = std::move(work), .after = std::move(after)});
  simulator.graphs.find(graph)->nodes.push_back(node);
  return node;
}

bool are_nodes_of(const Simulator& simulator, CUgraph graph, const CUgraphNode* nodes,
                  std::size_t count) {
  if (count != 0 && nodes == nullptr)
    return false;
  for (std::size_t i = 0; i < count; ++i) {
    const GraphNode* const found = simulator.graph_nodes.find(nodes[i]);
    if (found == nullptr || found->graph != graph ||
        std::find(nodes, nodes + i, nodes[i]) != nodes + i)
      return false;
  }
  return true;
}

namespace {

/// The graph's steps at the end of `steps`, none of them before all of `before`.
bool add_steps(const Simulator& simulator, CUgraph graph,
               const std::vector<std::size_t>& before, std::vector<Step>& steps) {
  std::map<CUgraphNode, std::size_t> placed;
  std::vector<CUgraphNode> rest = simulator.graphs.find(graph)->nodes;
  while (!rest.empty()) {
    const std::size_t left = rest.size();
    std::vector<CUgraphNode> later;  // nodes are mostly in a good order
    for (const CUgraphNode handle : rest) {
      const GraphNode& node = *simulator.graph_nodes.find(handle);
      std::vector<std::size_t> after = before;
      const bool is_next =
          std::all_of(node.after.begin(), node.after.end(), [&](CUgraphNode each) {
            const auto found = placed.find(each);
            if (found != placed.end())
              after.push_back(found->second);
            return found != placed.end();
          });
      if (!is_next) {
        later.push_back(handle);
        continue;
      }
      if (const auto* const child = std::get_if<ChildWork>(&node.work)) {
        const std::size_t first = steps.size();
        if (!add_steps(simulator, child->graph, after, steps))
          return false;
        for (std::size_t i = first; i < steps.size(); ++i) after.push_back(i);
      }
      placed[handle] = steps.size();
      steps.push_back({.node = handle, .work = node.work, .after = std::move(after)});
    }
    if (later.size() == left)
      return false;
    rest = std::move(later);
  }
  return true;
}

}  // namespace

std::optional<std::vector<Step>> steps_of(const Simulator& simulator, CUgraph graph) {
  std::vector<Step> steps;
  return add_steps(simulator, graph, {}, steps) ? std::optional(std::move(steps))
                                                : std::nullopt;
}

CUgraph clone_graph(Simulator& simulator, CUgraph graph) {
  const Graph original = *simulator.graphs.find(graph);
  const CUgraph made = simulator.graphs.add({});
  std::map<CUgraphNode, CUgraphNode> copies;
  for (const CUgraphNode handle : original.nodes) {
    Work work = simulator.graph_nodes.find(handle)->work;
    if (auto* const child = std::get_if<ChildWork>(&work)) {
      child->graph = clone_graph(simulator, child->graph);
      simulator.graphs.find(child->graph)->is_child = true;
    }
    copies[handle] = add_node(simulator, made, std::move(work), {});
    simulator.graph_nodes.find(copies[handle])->original = handle;
  }
  for (const auto& [from, to] : copies) {
    for (const CUgraphNode each : simulator.graph_nodes.find(from)->after)
      simulator.graph_nodes.find(to)->after.push_back(copies[each]);
  }
  simulator.graphs.find(made)->user_objects = original.user_objects;
  hold(simulator, original.user_objects);
  return made;
}

void destroy_node(Simulator& simulator, CUgraphNode node) {
  const GraphNode found = *simulator.graph_nodes.find(node);
  if (const auto* const child = std::get_if<ChildWork>(&found.work))
    destroy_graph(simulator, child->graph);
  auto& nodes = simulator.graphs.find(found.graph)->nodes;
  std::erase(nodes, node);
  for (const CUgraphNode each : nodes)
    std::erase(simulator.graph_nodes.find(each)->after, node);
  simulator.graph_nodes.erase(node);
}

void destroy_graph(Simulator& simulator, CUgraph graph) {
  const Graph found = *simulator.graphs.find(graph);
  for (auto each = found.nodes.rbegin(); each != found.nodes.rend(); ++each) {
    const auto* const child =
        std::get_if<ChildWork>(&simulator.graph_nodes.find(*each)->work);
    if (child != nullptr)
      destroy_graph(simulator, child->graph);
    simulator.graph_nodes.erase(*each);
  }
  simulator.graphs.erase(graph);
  let_go(simulator, found.user_objects);
}

void hold(Simulator& simulator, const UserObjects& objects) {
  for (const auto& [object, count] : objects)
    simulator.user_objects.find(object)->references += count;
}

void let_go(Simulator& simulator, const UserObjects& objects) {
  for (const auto& [handle, count] : objects) {
    UserObject& object = *simulator.user_objects.find(handle);
    object.references -= count;
    if (object.references != 0)
      continue;
    simulator.farewells.push_back(object.destroy);
    simulator.user_objects.erase(handle);
  }
}

}  // namespace kiln::simulated

namespace {

using Nodes = std::vector<CUgraphNode>;

/// All of them, or as many as there is room for, then nulls; or only how many.
CUresult list(const Nodes& all, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t told = out == nullptr ? all.size() : std::min(all.size(), *count);
  if (out != nullptr) {
    std::fill_n(out, *count, nullptr);
    std::copy_n(all.begin(), told, out);
  }
  *count = told;
  return CUDA_SUCCESS;
}

void clear(CUgraphEdgeData* edges, const CUgraphNode* out, const std::size_t* count) {
  if (edges != nullptr && out != nullptr && count != nullptr)
    std::fill_n(edges, *count, CUgraphEdgeData{});
}

/// `use(simulator, graph)` for a graph that there is; the same for a node.
template <typename Use>
CUresult with_graph(const char* symbol, CUgraph graph, const Use& use) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    Graph* const found = simulator.graphs.find(graph);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : use(simulator, *found);
  });
}

template <typename Use>
CUresult with_node(const char* symbol, CUgraphNode node, const Use& use) {
  return enter(symbol, Needs::kDriver, [&](Simulator& simulator) {
    GraphNode* const found = simulator.graph_nodes.find(node);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : use(simulator, *found);
  });
}

struct Edges {
  const CUgraphNode* from = nullptr;
  const CUgraphNode* to = nullptr;
  std::size_t count = 0;
};

enum class Change { kAdd, kRemove };

/// All of them or none.
CUresult change_edges(const char* symbol, CUgraph graph, const Edges& edges,
                      Change change) {
  return with_graph(symbol, graph, [&](Simulator& simulator, const Graph&) {
    const auto& [from, to, count] = edges;
    for (std::size_t i = 0; i < count; ++i) {
      if (from == nullptr || to == nullptr ||
          !are_nodes_of(simulator, graph, &from[i], 1) ||
          !are_nodes_of(simulator, graph, &to[i], 1) || from[i] == to[i])
        return CUDA_ERROR_INVALID_VALUE;
      const Nodes& after = simulator.graph_nodes.find(to[i])->after;
      const bool is_there =
          std::find(after.begin(), after.end(), from[i]) != after.end();
      if (is_there == (change == Change::kAdd))
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
      Nodes& after = simulator.graph_nodes.find(to[i])->after;
      if (change == Change::kAdd)
        after.push_back(from[i]);
      else
        std::erase(after, from[i]);
    }
    return CUDA_SUCCESS;
  });
}

/// In the words of the real one, as far as they matter to a reader.
std::string dot_of(const Simulator& simulator, const Graph& graph) {
  constexpr std::array kNames{"KERNEL", "MEMCPY", "MEMSET",     "HOST",
                              "GRAPH",  "EMPTY",  "EVENT_WAIT", "EVENT_RECORD"};
  std::string text = "digraph dot {\n";
  std::map<CUgraphNode, std::size_t> numbers;
  for (const CUgraphNode node : graph.nodes) numbers.emplace(node, numbers.size());
  for (const CUgraphNode node : graph.nodes) {
    const GraphNode& found = *simulator.graph_nodes.find(node);
    const std::size_t number = numbers[node];
    text += fmt::format("\"graph_node_{}\"[label=\"{}\\n{}\"];\n", number, number,
                        kNames[static_cast<std::size_t>(type_of(found.work))]);
    for (const CUgraphNode before : found.after)
      text += fmt::format("\"graph_node_{}\" -> \"graph_node_{}\";\n", numbers[before],
                          number);
  }
  return text + "}\n";
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (graph == nullptr || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    *graph = simulator.graphs.add({});
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  return with_graph(__func__, graph, [&](Simulator& simulator, const Graph&) {
    if (clone == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    *clone = clone_graph(simulator, graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return with_graph(__func__, graph, [&](Simulator& simulator, const Graph& found) {
    if (found.is_child)
      return CUDA_ERROR_INVALID_VALUE;
    destroy_graph(simulator, graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
  return with_node(__func__, node, [&](Simulator& simulator, const GraphNode&) {
    destroy_node(simulator, node);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return with_graph(__func__, graph, [&](Simulator&, const Graph& found) {
    return list(found.nodes, nodes, count);
  });
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return with_graph(__func__, graph, [&](Simulator& simulator, const Graph& found) {
    Nodes roots;
    std::copy_if(found.nodes.begin(), found.nodes.end(), std::back_inserter(roots),
                 [&](CUgraphNode each) {
                   return simulator.graph_nodes.find(each)->after.empty();
                 });
    return list(roots, nodes, count);
  });
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edges, std::size_t* count) {
  return with_graph(__func__, graph, [&](Simulator& simulator, const Graph& found) {
    if ((from == nullptr) != (to == nullptr) || count == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    Nodes sources;
    Nodes targets;
    for (const CUgraphNode node : found.nodes) {
      const Nodes& after = simulator.graph_nodes.find(node)->after;
      sources.insert(sources.end(), after.begin(), after.end());
      targets.insert(targets.end(), after.size(), node);
    }
    clear(edges, from, count);
    std::size_t room = *count;
    const CUresult result = list(sources, from, &room);
    return result == CUDA_SUCCESS ? list(targets, to, count) : result;
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* node, CUgraphNode original,
                                CUgraph clone) {
  return with_graph(__func__, clone, [&](Simulator& simulator, const Graph& found) {
    const auto copy =
        std::find_if(found.nodes.begin(), found.nodes.end(), [&](CUgraphNode each) {
          return simulator.graph_nodes.find(each)->original == original;
        });
    if (node == nullptr || original == nullptr || copy == found.nodes.end())
      return CUDA_ERROR_INVALID_VALUE;
    *node = *copy;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return with_node(__func__, node, [&](Simulator&, const GraphNode& found) {
    return answer(type, type_of(found.work));
  });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes,
                                       CUgraphEdgeData* edges, std::size_t* count) {
  return with_node(__func__, node, [&](Simulator&, const GraphNode& found) {
    clear(edges, nodes, count);
    return list(found.after, nodes, count);
  });
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes,
                                         CUgraphEdgeData* edges, std::size_t* count) {
  return with_node(__func__, node, [&](Simulator& simulator, const GraphNode& found) {
    Nodes dependent;
    for (const CUgraphNode each : simulator.graphs.find(found.graph)->nodes) {
      const Nodes& after = simulator.graph_nodes.find(each)->after;
      if (std::find(after.begin(), after.end(), node) != after.end())
        dependent.push_back(each);
    }
    clear(edges, nodes, count);
    return list(dependent, nodes, count);
  });
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                   const CUgraphNode* to,
                                   const CUgraphEdgeData* /*edges*/,
                                   std::size_t count) {
  return change_edges(__func__, graph, {from, to, count}, Change::kAdd);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                      const CUgraphNode* to,
                                      const CUgraphEdgeData* /*edges*/,
                                      std::size_t count) {
  return change_edges(__func__, graph, {from, to, count}, Change::kRemove);
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned /*flags*/) {
  return with_graph(__func__, graph, [&](Simulator& simulator, const Graph& found) {
    if (path == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    std::ofstream file(path);
    file << dot_of(simulator, found);
    return file.flush() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  });
}
