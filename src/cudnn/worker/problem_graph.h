// An attention problem as cuDNN's operation graph, lowered by cudnn-frontend, which
// knows the pattern of operations that cuDNN takes for attention.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/plan.h"
#include "attention/problem.h"
#include "device/architecture.h"
#include "kiln/result.h"

// The frontend opens cuDNN at run time, throws nothing and has no JSON of its own. Only
// this folder includes it: it is large.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define NV_CUDNN_DISABLE_EXCEPTION
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

namespace kiln::plan_worker {

/// An engine that the frontend selects by number, with its knobs, instead of leaving
/// the choice to cuDNN's heuristics.
struct ForcedEngine {
  std::int64_t id = -1;  // -1: none
  std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs;
};

/// cuDNN's descriptor of a device that need not be present.
using DeviceProperties = std::shared_ptr<const cudnn_frontend::DeviceProperties>;

/// From cuDNN's 23 properties as JSON. Errors: kInvalidArgument, with cuDNN's message.
[[nodiscard]] Result<DeviceProperties> device_properties(std::string_view json);

/// The frontend's graph, and what a run of it needs besides cuDNN's plan.
/// Thread safety: one thread.
class ProblemGraph : private cudnn_frontend::graph::Graph {
 public:
  /// Errors: kUnavailable with the frontend's message, if it or cuDNN refuses the
  /// problem before there is any engine to try.
  [[nodiscard]] static Result<std::unique_ptr<ProblemGraph>> make(
      const attention::Problem& problem, const DeviceProperties& device,
      device::ComputeCapability capability);

  [[nodiscard]] cudnnBackendDescriptor_t operation_graph() const {
    return get_operation_graph()->get_raw_desc();
  }
  [[nodiscard]] ForcedEngine forced_engine() const;

  /// Tensors, scalars and workspace; engine, kernels and JSON are left empty. Errors:
  /// kCompileFailed, if the graph needs something that Kiln cannot provide.
  [[nodiscard]] Result<attention::Plan> describe() const;

 private:
  ProblemGraph() = default;

  void add_forward(const attention::Problem& problem);
  void add_backward(const attention::Problem& problem);
};

}  // namespace kiln::plan_worker
