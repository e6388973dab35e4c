// Attention as programs call it: by cuDNN's plan or by Kiln's own kernel, as
// AttentionCalls decides.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "kiln/ops/attention.h"
#include "library/public_border.h"
#include "library/service_parts.h"
#include "ops/attention.h"
#include "ops/check.h"
#include "ops/cudnn_tensors.h"
#include "ops/on_device.h"
#include "ops/run.h"
#include "util/try.h"

// One call, one named step a line:
//
//   problem ─ tensors ─ device ─ decided? ─ workspace ─┬─ cuDNN's plan
//                                                      └─ Kiln's kernels

namespace kiln::ops {
namespace {

using attention::Pass;
using attention::Problem;

/// Of that pass, and with the statistics that it writes or reads.
Result<Problem> problem_for(Pass pass, const Problem& given) {
  if (given.pass != pass)
    return refuse(operation_of(pass),
                  fmt::format("problem.pass is {}", to_string(given.pass)));
  Problem problem = given;
  problem.stats = problem.stats || problem.training;
  return problem;
}

/// As cuDNN's plans want every tensor to begin.
bool is_aligned_for_cudnn(const AttentionCall& call) {
  const AttentionTensors& tensors = call.tensors;
  const auto is = [](bool is_read, const void* at) {
    return !is_read || reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
  };
  return properties_of(call).is_aligned && is(call.problem.stats, tensors.stats) &&
         is(call.problem.bias == attention::Bias::kPostScale, tensors.bias) &&
         is(call.problem.bias_gradient, tensors.grad_bias);
}

AttentionQuestion question_of(const AttentionCall& call, const Device& device) {
  return {.problem = call.problem,
          .device = device.ordinal,
          .call = properties_of(call),
          .is_aligned_for_cudnn = is_aligned_for_cudnn(call)};
}

/// What the backend wants; what Kiln's kernel would want besides, as a tensor that is
/// not aligned makes it Kiln's.
std::uint64_t workspace_of(const AttentionDecision& decision, const Problem& problem) {
  const bool is_cudnn = decision.backend == AttentionBackend::kCudnn;
  return std::max(
      is_cudnn ? sequence_bytes(problem) + decision.cudnn_workspace_bytes : 0,
      attention_workspace_bytes(problem));
}

/// Decides and fetches whatever has not been.
Result<const AttentionDecision*> prepare_call(Service& service,
                                              const AttentionCall& call,
                                              const Device& device) {
  AttentionCalls& calls = ServiceParts::attention_of(service);
  const AttentionQuestion question = question_of(call, device);
  AttentionDecision decision = KILN_TRY(calls.prepare(question, device));
  const bool is_cudnn = decision.backend == AttentionBackend::kCudnn;
  KILN_TRY(
      fetch(service, device,
            is_cudnn ? sequence_launches(call) : KILN_TRY(launches(call, device))));
  return calls.remember(question, std::move(decision));
}

/// What was prepared; in a capture nothing else is run.
Result<const AttentionDecision*> decide(Service& service, CUstream_st* stream,
                                        const AttentionCall& call,
                                        const Device& device) {
  AttentionCalls& calls = ServiceParts::attention_of(service);
  if (const AttentionDecision* const known = calls.find(question_of(call, device)))
    return known;
  if (KILN_TRY(calls.is_capturing(stream)))
    return refuse(operation_of(call.problem.pass),
                  fmt::format("{}: the stream is being captured, and this problem was "
                              "not prepared on device {} for tensors that are {} to 16 "
                              "bytes and a scale of that sign: call prepare(), or run "
                              "it once, before the capture begins",
                              to_string(call.problem), device.ordinal,
                              is_aligned_for_cudnn(call) ? "aligned" : "not aligned"));
  return prepare_call(service, call, device);
}

Result<void> check_workspace(const AttentionDecision& decision,
                             const AttentionCall& call) {
  const AttentionTensors& given = call.tensors;
  const std::uint64_t needed = workspace_of(decision, call.problem);
  if (needed == 0)
    return {};
  const std::string_view operation = operation_of(call.problem.pass);
  constexpr std::uint64_t kAlignment = attention::kWorkspaceAlignment;
  if (reinterpret_cast<std::uintptr_t>(given.workspace) % kAlignment != 0)
    return refuse(operation, fmt::format("workspace is at {}, no multiple of {} bytes",
                                         given.workspace, kAlignment));
  if (given.workspace != nullptr && given.workspace_bytes >= needed)
    return {};
  return refuse(
      operation,
      fmt::format("it needs a workspace of {} bytes, as prepare() says, and {}", needed,
                  given.workspace == nullptr
                      ? "none was given"
                      : fmt::format("{} were given", given.workspace_bytes)));
}

Result<void> run_cudnn(Service& service, const Device& device, CUstream_st* stream,
                       const AttentionCall& call) {
  KILN_TRY(run(service, device, stream, sequence_launches(call)));
  float scale = scale_of(call);
  const std::uint64_t begin = sequence_bytes(call.problem);
  const attention::WorkspaceMemory own{
      static_cast<std::byte*>(call.tensors.workspace) + begin,
      call.tensors.workspace_bytes - begin};
  return ServiceParts::attention_of(service).run_cudnn(call.problem, stream,
                                                       cudnn_tensors(call, scale), own);
}

/// In `stream`, on the device whose context is current.
Result<void> run_there(Service& service, const Device& device, CUstream_st* stream,
                       const AttentionCall& call) {
  const AttentionDecision& decision = *KILN_TRY(decide(service, stream, call, device));
  KILN_TRY(check_workspace(decision, call));
  if (decision.backend == AttentionBackend::kCudnn)
    return run_cudnn(service, device, stream, call);
  return run(service, device, stream, KILN_TRY(launches(call, device)));
}

Result<void> run_attention(Service& service, const Place& place, const Problem& given,
                           const AttentionTensors& tensors, Pass pass) {
  return at_border([&]() -> Result<void> {
    const Problem problem = KILN_TRY(problem_for(pass, given));
    const AttentionCall call{.problem = problem, .tensors = tensors};
    KILN_TRY(check_options(call));
    KILN_TRY(check_pointers(call));
    return on_device(service, place, [&] {
      return run_there(service, place.device, place.stream, call);
    });
  });
}

}  // namespace

Result<void> attention_forward(Service& service, const Device& device,
                               CUstream_st* stream, const Problem& problem,
                               const AttentionTensors& tensors) {
  return run_attention(service, {operation_of(Pass::kForward), device, stream}, problem,
                       tensors, Pass::kForward);
}

Result<void> attention_backward(Service& service, const Device& device,
                                CUstream_st* stream, const Problem& problem,
                                const AttentionTensors& tensors) {
  return run_attention(service, {operation_of(Pass::kBackward), device, stream},
                       problem, tensors, Pass::kBackward);
}

Result<AttentionChoice> prepare(Service& service, const Device& device,
                                const Problem& given) {
  return at_border([&]() -> Result<AttentionChoice> {
    const Problem problem = KILN_TRY(problem_for(given.pass, given));
    const AttentionTensors none{};
    const AttentionCall call{.problem = problem, .tensors = none};
    KILN_TRY(check_options(call));
    const AttentionDecision& decision = *KILN_TRY(prepare_call(service, call, device));
    return AttentionChoice{.backend = decision.backend,
                           .reason = decision.reason,
                           .workspace_bytes = workspace_of(decision, problem)};
  });
}

}  // namespace kiln::ops
