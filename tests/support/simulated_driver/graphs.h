// Graphs: nodes of work, each after those that it depends on.

#pragma once

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "tests/support/simulated_driver/abi.h"
#include "tests/support/simulated_driver/launches.h"
#include "tests/support/simulated_driver/memory_work.h"

namespace kiln::simulated {

struct EmptyWork {};

struct HostWork {
  CUhostFn function = nullptr;
  void* user = nullptr;
};

struct EventWork {
  CUevent event = nullptr;
  bool is_record = false;  // else it waits for it
};

struct ChildWork {
  CUgraph graph = nullptr;  // the node's own
};

using Work =
    std::variant<EmptyWork, KernelWork, MemoryWork, HostWork, EventWork, ChildWork>;

struct GraphNode {
  CUgraph graph = nullptr;
  Work work;
  std::vector<CUgraphNode> after{};
  CUgraphNode original = nullptr;  // of a copy
};

using UserObjects = std::map<CUuserObject, unsigned>;  // and how often each is held

struct Graph {
  std::vector<CUgraphNode> nodes{};
  UserObjects user_objects{};
  bool is_child = false;  // of a node
};

struct Step {
  CUgraphNode node = nullptr;
  Work work;
  std::vector<std::size_t> after{};  // steps
};

struct GraphExec {
  std::vector<Step> steps{};  // in an order that can be run
  UserObjects user_objects{};
  cuuint64_t flags = 0;
};

struct UserObject {
  HostWork destroy;
  unsigned references = 0;
};

CUgraphNode add_node(Simulator& simulator, CUgraph graph, Work work,
                     std::vector<CUgraphNode> after);

/// True if they are different nodes of that graph.
[[nodiscard]] bool are_nodes_of(const Simulator& simulator, CUgraph graph,
                                const CUgraphNode* nodes, std::size_t count);

/// With the nodes of child graphs. nullopt where nodes wait for each other in a circle.
[[nodiscard]] std::optional<std::vector<Step>> steps_of(const Simulator& simulator,
                                                        CUgraph graph);

CUgraph clone_graph(Simulator& simulator, CUgraph graph);
void destroy_node(Simulator& simulator, CUgraphNode node);
void destroy_graph(Simulator& simulator, CUgraph graph);

/// More references to the same objects; or fewer, and the end of those without any.
void hold(Simulator& simulator, const UserObjects& objects);
void let_go(Simulator& simulator, const UserObjects& objects);

[[nodiscard]] CUgraphNodeType type_of(const Work& work);

}  // namespace kiln::simulated
