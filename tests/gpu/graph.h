// CUDA graphs of what a test starts in a stream.

#pragma once

#include <tuple>

#include "tests/gpu/driver.h"
#include "tests/gpu/on_device.h"

namespace kiln::gpu_test {

/// What `body` starts in the stream, as a graph that can be launched.
class Graph {
 public:
  template <typename Body>
  Graph(const Stream& stream, const Body& body) {
    // The strictest mode: whatever might disturb a capture ends this one.
    must(driver().cuStreamBeginCapture(stream.handle(), CU_STREAM_CAPTURE_MODE_GLOBAL),
         "cuStreamBeginCapture");
    body();
    CUgraph graph = nullptr;
    must(driver().cuStreamEndCapture(stream.handle(), &graph), "cuStreamEndCapture");
    must(driver().cuGraphInstantiateWithFlags(&handle_, graph, 0),
         "cuGraphInstantiateWithFlags");
    must(driver().cuGraphDestroy(graph), "cuGraphDestroy");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { std::ignore = driver().cuGraphExecDestroy(handle_); }

  void launch(const Stream& stream) const {
    must(driver().cuGraphLaunch(handle_, stream.handle()), "cuGraphLaunch");
  }

 private:
  CUgraphExec handle_ = nullptr;
};

}  // namespace kiln::gpu_test
