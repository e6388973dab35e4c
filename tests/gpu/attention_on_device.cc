#include "tests/gpu/attention_on_device.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "ops/run.h"
#include "tests/gpu/device_copies.h"
#include "tests/gpu/graph.h"
#include "tests/gpu/operations_on_device.h"
#include "tests/integration/attention_kernel/call.h"
#include "util/try.h"

namespace kiln::gpu_test {
namespace {

using attention::Pass;
using kiln_cpu::GuardedMemory;

struct Services {
  Service& forward;
  Service& backward;
};
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
bool in_graphs = false;
std::optional<Services> services;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

template <typename Run>
Result<void> start(const OperationsOnDevice& on, const Run& run) {
  if (!in_graphs)
    return run();
  Result<void> done;
  Graph(on.stream(), [&] { done = run(); }).launch(on.stream());
  on.stream().synchronize();  // before the graph ends
  return done;
}

Result<void> run_plan(const OperationsOnDevice& on, const ops::AttentionCall& call) {
  const ops::Launches plan = KILN_TRY(ops::plan(call, on.device()));
  if (in_graphs)
    KILN_TRY(ops::fetch(on.service(), on.device(), plan));
  return start(on, [&] {
    return ops::run(on.service(), on.device(), on.stream().handle(), plan);
  });
}

Result<void> run_public(const OperationsOnDevice& on, Service& service,
                        const ops::AttentionCall& call) {
  return start(on, [&] {
    return test::call(service, on.device(), on.stream().handle(), call.problem,
                      call.tensors);
  });
}

/// With each tensor of the host on the device.
template <typename Run>
Result<void> with_copies(const OperationsOnDevice& on, const ops::AttentionCall& call,
                         const Run& run) {
  const DeviceCopies copies;
  const ops::AttentionTensors tensors = copies.moved(call.tensors);
  const auto done = run(ops::AttentionCall{call.problem, tensors});
  on.stream().synchronize();
  copies.take_back();
  return done;
}

}  // namespace

AttentionInGraphs::AttentionInGraphs() {
  in_graphs = true;
}

AttentionInGraphs::~AttentionInGraphs() {
  in_graphs = false;
}

AttentionByServices::AttentionByServices(Service& forward, Service& backward) {
  services.emplace(Services{forward, backward});
}

AttentionByServices::~AttentionByServices() {
  services.reset();
}

}  // namespace kiln::gpu_test

namespace kiln::attention_test {

Result<void> run_call(const ops::AttentionCall& call, const Setting& /*setting*/) {
  namespace gpu = gpu_test;
  const gpu::OperationsOnDevice& on = gpu::OperationsOnDevice::of_test();
  if (!gpu::services)
    return gpu::with_copies(on, call, [&](const ops::AttentionCall& moved) {
      return gpu::run_plan(on, moved);
    });
  Service& service = call.problem.pass == Pass::kForward ? gpu::services->forward
                                                         : gpu::services->backward;
  const auto choice = KILN_TRY(test::prepare(service, on.device(), call.problem));
  // What is in it before means nothing, and nothing behind it is written.
  kiln_cpu::GuardedMemory workspace("workspace", choice.workspace_bytes,
                                    {.exact = kiln_cpu::Side::kBegin});
  std::ranges::fill(std::span(workspace.data(), workspace.size()), std::byte{0xfe});
  ops::AttentionTensors tensors = call.tensors;
  tensors.workspace = workspace.size() == 0 ? nullptr : workspace.data();
  tensors.workspace_bytes = workspace.size();
  return gpu::with_copies(on, {call.problem, tensors},
                          [&](const ops::AttentionCall& moved) {
                            return gpu::run_public(on, service, moved);
                          });
}

}  // namespace kiln::attention_test
