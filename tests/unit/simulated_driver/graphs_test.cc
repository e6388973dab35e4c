#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

class SimulatedGraphs : public testing::Test {
 protected:
  SimulatedGraphs() {
    driver_.use();
    EXPECT_EQ(driver_.cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuMemAlloc(&memory_, 8), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuMemsetD8(memory_, 0, 8), CUDA_SUCCESS);
  }

  /// A node that fills all eight bytes, after those nodes.
  [[nodiscard]] CUgraphNode fill(unsigned value,
                                 const std::vector<CUgraphNode>& after = {}) const {
    const CUDA_MEMSET_NODE_PARAMS asked{.dst = memory_,
                                        .pitch = 0,
                                        .value = value,
                                        .elementSize = 1,
                                        .width = 8,
                                        .height = 1};
    const CUgraphNode node = value_of(driver_.cuGraphAddMemsetNode, graph_,
                                      after.data(), after.size(), &asked, nullptr);
    return node;
  }

  [[nodiscard]] CUgraphExec instantiate() const {
    const CUgraphExec executable = value_of(driver_.cuGraphInstantiate, graph_, 0);
    return executable;
  }

  [[nodiscard]] unsigned first_byte() const {
    unsigned char value = 0;
    EXPECT_EQ(driver_.cuMemcpyDtoH(&value, memory_, 1), CUDA_SUCCESS);
    return value;
  }

  [[nodiscard]] std::vector<CUgraphNode> before(CUgraphNode node) const {
    std::vector<CUgraphNode> nodes(8);
    std::size_t count = nodes.size();
    EXPECT_EQ(
        driver_.cuGraphNodeGetDependencies_v2(node, nodes.data(), nullptr, &count),
        CUDA_SUCCESS);
    nodes.resize(count);
    return nodes;
  }

  DriverUnderTest driver_;
  CUgraph graph_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(SimulatedGraphs, RunTheirNodesAfterThoseTheyDependOn) {
  const CUgraphNode last = fill(2);
  const CUgraphNode first = fill(1);
  ASSERT_EQ(driver_.cuGraphAddDependencies_v2(graph_, &first, &last, nullptr, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuGraphAddDependencies_v2(graph_, &first, &last, nullptr, 1),
            CUDA_ERROR_INVALID_VALUE)
      << "twice";
  EXPECT_THAT(before(last), testing::ElementsAre(first));
  std::array<CUgraphNode, 3> roots{};
  std::size_t count = roots.size();
  EXPECT_EQ(driver_.cuGraphGetRootNodes(graph_, roots.data(), &count), CUDA_SUCCESS);
  EXPECT_THAT(roots, testing::ElementsAre(first, nullptr, nullptr));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(driver_.cuGraphLaunch(instantiate(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(first_byte(), 2U);
  ASSERT_EQ(driver_.cuGraphAddDependencies_v2(graph_, &last, &first, nullptr, 1),
            CUDA_SUCCESS);
  CUgraphExec circle = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS asked{};
  EXPECT_EQ(driver_.cuGraphInstantiateWithParams(&circle, graph_, &asked),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(asked.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
  EXPECT_EQ(driver_.cuGraphRemoveDependencies_v2(graph_, &last, &first, nullptr, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuGraphDestroyNode(first), CUDA_SUCCESS);
  EXPECT_TRUE(before(last).empty());
}

TEST_F(SimulatedGraphs, LaunchKernelsWithTheValuesOfThatTime) {
  std::vector<std::uint64_t> seen;
  driver_.register_kernel(
      "k",
      +[](const kiln_simulated_launch*, void** parameters, void* user) {
        static_cast<std::vector<std::uint64_t>*>(user)->push_back(
            *static_cast<std::uint64_t*>(parameters[0]));
      },
      &seen);
  std::uint64_t value = 7;
  void* parameters = &value;
  CUDA_KERNEL_NODE_PARAMS asked{};
  asked.func = driver_.load(cubin_for("sm_90"), "k");
  asked.gridDimX = asked.gridDimY = asked.gridDimZ = 1;
  asked.blockDimX = 512;
  asked.blockDimY = asked.blockDimZ = 1;
  asked.kernelParams = &parameters;
  CUgraphNode node = nullptr;
  EXPECT_EQ(driver_.cuGraphAddKernelNode(&node, graph_, nullptr, 0, &asked),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  asked.blockDimX = 64;
  ASSERT_EQ(driver_.cuGraphAddKernelNode(&node, graph_, nullptr, 0, &asked),
            CUDA_SUCCESS);
  value = 8;
  const CUgraphExec executable = instantiate();
  EXPECT_EQ(driver_.cuGraphLaunch(executable, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuGraphExecKernelNodeSetParams(executable, node, &asked),
            CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuGraphLaunch(executable, nullptr), CUDA_SUCCESS);
  EXPECT_THAT(seen, testing::ElementsAre(7, 8));
  CUDA_KERNEL_NODE_PARAMS told{};
  ASSERT_EQ(driver_.cuGraphKernelNodeGetParams(node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.func, asked.func);
  EXPECT_EQ(told.blockDimX, 64U);
  EXPECT_EQ(*static_cast<std::uint64_t*>(told.kernelParams[0]), 7U);
  const auto launches = driver_.launches();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].is_repeated, 1);
}

TEST_F(SimulatedGraphs, HoldGraphsOfTheirOwn) {
  std::ignore = fill(3);
  const CUgraph parent = value_of(driver_.cuGraphCreate, 0);
  const CUgraphNode node =
      value_of(driver_.cuGraphAddChildGraphNode, parent, nullptr, 0, graph_);
  CUgraphNodeType type{};
  EXPECT_EQ(driver_.cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
  CUgraph child = nullptr;
  ASSERT_EQ(driver_.cuGraphChildGraphNodeGetGraph(node, &child), CUDA_SUCCESS);
  EXPECT_NE(child, graph_);
  EXPECT_EQ(driver_.cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver_.cuGraphDestroy(graph_), CUDA_SUCCESS);
  graph_ = parent;
  EXPECT_EQ(driver_.cuGraphLaunch(instantiate(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(first_byte(), 3U);
  EXPECT_EQ(driver_.cuGraphDestroy(parent), CUDA_SUCCESS);
  EXPECT_EQ(driver_.alive(KILN_SIMULATED_GRAPHS), 1U) << "the executable one";
}

TEST_F(SimulatedGraphs, AreUpdatedByOthersOfTheSameShape) {
  const CUgraphNode one = fill(1);
  const CUgraphExec executable = instantiate();
  const CUgraph changed = value_of(driver_.cuGraphClone, graph_);
  const CUgraphNode copy = value_of(driver_.cuGraphNodeFindInClone, one, changed);
  EXPECT_EQ(driver_.cuGraphDestroyNode(copy), CUDA_SUCCESS);
  graph_ = changed;
  const CUgraphNode two = fill(2);
  CUgraphExecUpdateResultInfo told{};
  ASSERT_EQ(driver_.cuGraphExecUpdate(executable, changed, &told), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuGraphLaunch(executable, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(first_byte(), 2U);
  std::ignore = fill(3, {two});
  EXPECT_EQ(driver_.cuGraphExecUpdate(executable, changed, &told),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(told.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

TEST_F(SimulatedGraphs, LetGoOfWhatTheyHeldForTheProgram) {
  int ends = 0;
  CUuserObject object = nullptr;
  ASSERT_EQ(driver_.cuUserObjectCreate(
                &object, &ends, +[](void* user) { ++*static_cast<int*>(user); }, 1,
                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuGraphRetainUserObject(graph_, object, 1, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  const CUgraphExec executable = instantiate();
  ASSERT_EQ(driver_.cuGraphDestroy(graph_), CUDA_SUCCESS);
  EXPECT_EQ(ends, 0) << "the executable graph holds it, too";
  ASSERT_EQ(driver_.cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(driver_.cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SimulatedGraphs, CallTheHostAndRecordEvents) {
  const CUevent event = value_of(driver_.cuEventCreate, 0);
  int calls = 0;
  const CUDA_HOST_NODE_PARAMS asked{
      .fn = +[](void* user) { ++*static_cast<int*>(user); }, .userData = &calls};
  CUgraphNode host = value_of(driver_.cuGraphAddHostNode, graph_, nullptr, 0, &asked);
  EXPECT_NE(value_of(driver_.cuGraphAddEventRecordNode, graph_, &host, 1, event),
            nullptr);
  CUgraphNode other = nullptr;
  EXPECT_EQ(driver_.cuGraphAddEmptyNode(&other, nullptr, nullptr, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_.cuGraphLaunch(instantiate(), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(value_of(driver_.cuEventElapsedTime, event, event), 0);
  const auto path = driver_.path().replace_extension(".dot");
  ASSERT_EQ(driver_.cuGraphDebugDotPrint(graph_, path.c_str(), 0), CUDA_SUCCESS);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, testing::HasSubstr(R"("graph_node_0" -> "graph_node_1")"));
}

}  // namespace
}  // namespace kiln::test
