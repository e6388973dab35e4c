#include "tests/gpu/attention_on_device.h"

#include "ops/run.h"
#include "tests/gpu/device_copies.h"
#include "tests/gpu/graph.h"
#include "tests/gpu/operations_on_device.h"
#include "tests/integration/attention_kernel/call.h"
#include "util/try.h"

namespace kiln::gpu_test {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
bool in_graphs = false;

Result<void> start(const OperationsOnDevice& on, const ops::Plan& plan) {
  const auto run = [&] {
    return ops::run(on.service(), on.device(), on.stream().handle(), plan);
  };
  if (!in_graphs)
    return run();
  KILN_TRY(ops::fetch(on.service(), on.device(), plan));
  Result<void> done;
  Graph(on.stream(), [&] { done = run(); }).launch(on.stream());
  on.stream().synchronize();  // before the graph ends
  return done;
}

}  // namespace

AttentionInGraphs::AttentionInGraphs() {
  in_graphs = true;
}

AttentionInGraphs::~AttentionInGraphs() {
  in_graphs = false;
}

}  // namespace kiln::gpu_test

namespace kiln::attention_test {

Result<void> run_call(const ops::AttentionCall& call, const Setting& /*setting*/) {
  const gpu_test::OperationsOnDevice& on = gpu_test::OperationsOnDevice::of_test();
  const gpu_test::DeviceCopies copies;
  const ops::AttentionTensors tensors = copies.moved(call.tensors);
  const ops::Plan plan = KILN_TRY(ops::plan({call.problem, tensors}, on.device()));
  if (gpu_test::driver().is_simulated && !gpu_test::stands_in_for(plan))
    return fail(ErrorCode::kNotFound, "nothing stands in for a kernel of the call");
  const auto done = gpu_test::start(on, plan);
  on.stream().synchronize();
  copies.take_back();
  return done;
}

}  // namespace kiln::attention_test
