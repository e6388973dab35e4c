#include <array>
#include <thread>

#include "tests/unit/simulated_driver/api.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::test {
namespace {

class SimulatedCapture : public testing::Test {
 protected:
  SimulatedCapture() {
    driver_.use();
    function_ = driver_.load(cubin_for("sm_90"), "k");
    EXPECT_EQ(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }

  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    ASSERT_EQ(driver_.cuStreamBeginCapture(stream_, mode), CUDA_SUCCESS);
  }

  [[nodiscard]] CUstreamCaptureStatus status() const {
    CUstreamCaptureStatus status{};
    EXPECT_EQ(driver_.cuStreamIsCapturing(stream_, &status), CUDA_SUCCESS);
    return status;
  }

  DriverUnderTest driver_;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(SimulatedCapture, MakesAGraphOfLaunchesThatCanBeRepeated) {
  bool has_run = false;
  driver_.register_kernel(
      "k",
      +[](const kiln_simulated_launch*, void**, void* user) {
        *static_cast<bool*>(user) = true;
      },
      &has_run);
  begin();
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUcontext context = nullptr;
  EXPECT_EQ(driver_.cuStreamGetCtx(stream_, &context), CUDA_SUCCESS);
  EXPECT_EQ(driver_.launch(function_, 7, 32, 0, stream_), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  EXPECT_FALSE(has_run);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_NONE);
  std::size_t nodes = 0;
  EXPECT_EQ(driver_.cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 1U);
  const CUgraphExec executable = value_of(driver_.cuGraphInstantiate, graph, 0);
  ASSERT_EQ(driver_.cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuGraphLaunch(executable, nullptr), CUDA_SUCCESS);
  const auto launches = driver_.launches();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[1].grid[0], 7U);
  EXPECT_EQ(launches[0].is_captured, 1);
  EXPECT_EQ(launches[1].is_captured, 0);
  EXPECT_EQ(launches[1].is_repeated, 1);
  EXPECT_EQ(launches[1].stream, nullptr);
  EXPECT_EQ(driver_.cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver_.alive(KILN_SIMULATED_GRAPHS), 0U);
}

TEST_F(SimulatedCapture, RepeatsCopiesAndFillsWheneverTheGraphIsLaunched) {
  const CUdeviceptr memory = value_of(driver_.cuMemAlloc, 8);
  ASSERT_EQ(driver_.cuMemsetD8(memory, 1, 8), CUDA_SUCCESS);
  std::array<unsigned, 2> host{7, 7};
  begin();
  EXPECT_EQ(driver_.cuMemsetD32Async(memory, 0x02030405, 2, stream_), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemcpyHtoDAsync(memory, host.data(), 4, stream_), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemsetD8Async(memory, 0, 9, stream_), CUDA_ERROR_INVALID_VALUE);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  std::array<unsigned, 2> read{};
  EXPECT_EQ(driver_.cuMemcpyDtoH(read.data(), memory, 8), CUDA_SUCCESS);
  EXPECT_EQ(read[0], 0x01010101U) << "captured, not done";
  const CUgraphExec executable = value_of(driver_.cuGraphInstantiate, graph, 0);
  host[0] = 9;  // a graph reads the host's memory when it runs
  ASSERT_EQ(driver_.cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemcpyDtoH(read.data(), memory, 8), CUDA_SUCCESS);
  EXPECT_EQ(read[0], 9U);
  EXPECT_EQ(read[1], 0x02030405U);
}

TEST_F(SimulatedCapture, IsEndedByCallsThatWaitOrAllocate) {
  const Bytes image = cubin_for("sm_90");
  for (const int which : {0, 1, 2, 3}) {
    begin();
    CUmodule module = nullptr;
    CUdeviceptr memory = 0;
    const CUresult result = which == 0   ? driver_.cuStreamSynchronize(stream_)
                            : which == 1 ? driver_.cuMemAlloc(&memory, 4)
                            : which == 2
                                ? driver_.cuModuleLoadData(&module, image.data())
                                : driver_.cuCtxSynchronize();
    EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << which;
    EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(driver_.launch(function_, 1, 32, 0, stream_),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUgraph graph = nullptr;
    EXPECT_EQ(driver_.cuStreamEndCapture(stream_, &graph),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
  }
}

TEST_F(SimulatedCapture, LeavesRelaxedThreadsAlone) {
  const Bytes image = cubin_for("sm_90");
  CUmodule module = nullptr;
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(driver_.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(driver_.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(driver_.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

TEST_F(SimulatedCapture, OfOneThreadIsDisturbedByAnotherOnlyIfItIsGlobal) {
  for (const auto mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    const bool is_global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    begin(mode);
    std::thread([&] {
      driver_.use();
      CUdeviceptr memory = 0;
      EXPECT_EQ(driver_.cuMemAlloc(&memory, 4),
                is_global ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
      CUgraph graph = nullptr;
      EXPECT_EQ(driver_.cuStreamEndCapture(stream_, &graph),
                CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
    CUgraph graph = nullptr;
    EXPECT_EQ(driver_.cuStreamEndCapture(stream_, &graph),
              is_global ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
  }
}

TEST_F(SimulatedCapture, OfABlockingStreamForbidsTheLegacyStream) {
  EXPECT_EQ(driver_.cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  begin();
  EXPECT_EQ(driver_.launch(function_), CUDA_SUCCESS) << "non-blocking";
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamDestroy(stream_), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamCreate(&stream_, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  begin();
  CUstreamCaptureStatus of_legacy{};
  EXPECT_EQ(driver_.cuStreamIsCapturing(nullptr, &of_legacy),
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE) << "a question disturbs nobody";
  EXPECT_EQ(driver_.launch(function_), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
}

TEST_F(SimulatedCapture, TakesInStreamsThatWaitForItsEvents) {
  const CUstream other = value_of(driver_.cuStreamCreate, CU_STREAM_NON_BLOCKING);
  const CUevent event = value_of(driver_.cuEventCreate, 0);
  const auto fork = [&] {
    begin();
    EXPECT_EQ(driver_.launch(function_, 1, 32, 0, stream_), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuEventRecord(event, stream_), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(driver_.cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.launch(function_, 2, 32, 0, other), CUDA_SUCCESS);
    EXPECT_EQ(driver_.launch(function_, 3, 32, 0, stream_), CUDA_SUCCESS);
  };
  CUgraph graph = nullptr;
  fork();
  EXPECT_EQ(driver_.cuStreamEndCapture(other, &graph),
            CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(driver_.cuStreamEndCapture(stream_, &graph),
            CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(driver_.alive(KILN_SIMULATED_GRAPHS), 0U);
  fork();
  EXPECT_EQ(driver_.cuEventRecord(event, other), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuStreamWaitEvent(stream_, event, 0), CUDA_SUCCESS);
  int calls = 0;
  EXPECT_EQ(driver_.cuLaunchHostFunc(
                stream_, +[](void* user) { ++*static_cast<int*>(user); }, &calls),
            CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  std::array<CUgraphNode, 4> from{};
  std::array<CUgraphNode, 4> to{};
  std::size_t edges = from.size();
  EXPECT_EQ(driver_.cuGraphGetEdges_v2(graph, from.data(), to.data(), nullptr, &edges),
            CUDA_SUCCESS);
  EXPECT_EQ(edges, 4U);
  EXPECT_EQ(from[0], from[1]) << "both wait for the first";
  EXPECT_EQ(to[2], to[3]) << "the last waits for both";
  const CUgraphExec executable = value_of(driver_.cuGraphInstantiate, graph, 0);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(driver_.cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
}

TEST_F(SimulatedCapture, DoesNotWaitForWhatIsOutsideOfIt) {
  const CUevent event = value_of(driver_.cuEventCreate, 0);
  ASSERT_EQ(driver_.cuEventRecord(event, nullptr), CUDA_SUCCESS);
  begin();
  EXPECT_EQ(driver_.cuStreamWaitEvent(stream_, event, CU_EVENT_WAIT_EXTERNAL),
            CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuStreamWaitEvent(stream_, event, 0),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(driver_.cuStreamEndCapture(stream_, nullptr),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SimulatedCapture, TellsItsGraphAndFailsWithoutIt) {
  const auto get_info =
      driver_.find<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                            const CUgraphNode**, std::size_t*)>(
          "cuStreamGetCaptureInfo_v2");
  begin();
  EXPECT_EQ(driver_.launch(function_, 1, 32, 0, stream_), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(get_info(stream_, &status, nullptr, &graph, &nodes, &count), CUDA_SUCCESS);
  ASSERT_EQ(count, 1U);
  EXPECT_NE(nodes[0], nullptr);
  EXPECT_EQ(driver_.cuGraphDestroy(graph), CUDA_SUCCESS);
  std::ignore = driver_.launch(function_, 1, 32, 0, stream_);
  EXPECT_EQ(driver_.cuStreamEndCapture(stream_, &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SimulatedCapture, BeginsAndEndsOnce) {
  CUgraph graph = nullptr;
  EXPECT_EQ(driver_.cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
  begin();
  EXPECT_EQ(driver_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_ILLEGAL_STATE);
}

}  // namespace
}  // namespace kiln::test
