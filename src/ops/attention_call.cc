// Attention as programs call it: by cuDNN's plan or by Kiln's own kernel, as
// AttentionCalls decides.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kiln/ops/attention.h"
#include "ops/attention.h"
#include "ops/check.h"
#include "ops/cudnn_tensors.h"
#include "ops/run.h"
#include "public_border.h"
#include "service_parts.h"
#include "util/try.h"

// One call, one named step a line:
//
//   problem ─ device ─ tensors ─ decided? ─ workspace ─┬─ cuDNN's plan
//                                                      └─ Kiln's kernels

namespace kiln::ops {
namespace {

using attention::Pass;
using attention::Problem;

std::string_view operation_of(Pass pass) {
  return pass == Pass::kForward ? "attention_forward" : "attention_backward";
}

/// Checked, and with the statistics that its pass writes or reads.
Result<Problem> checked(const Problem& given, Pass pass) {
  const auto valid = attention::validate(given);
  if (!valid)
    return refuse(operation_of(pass), valid.error().message);
  if (given.pass != pass)
    return refuse(operation_of(pass),
                  fmt::format("problem.pass is {}", to_string(given.pass)));
  Problem problem = given;
  problem.stats = problem.stats || problem.training;
  return problem;
}

float scale_of(const AttentionCall& call) {
  return call.tensors.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(call.problem.dqk))));
}

/// As cuDNN's plans want every tensor to begin.
bool is_aligned(const AttentionTensors& tensors) {
  return std::ranges::all_of(
      std::initializer_list<const void*>{tensors.q, tensors.k, tensors.v, tensors.o,
                                         tensors.stats, tensors.bias, tensors.grad_o,
                                         tensors.grad_q, tensors.grad_k, tensors.grad_v,
                                         tensors.grad_bias},
      [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; });
}

AttentionQuestion question_of(const AttentionCall& call, const Device& device) {
  const float scale = scale_of(call);  // finite
  return {.problem = call.problem,
          .device = device.ordinal,
          .has_aligned_tensors = is_aligned(call.tensors),
          .has_positive_scale = scale > 0};
}

/// What the backend wants; what Kiln's kernel would want besides, as a tensor that is
/// not aligned makes it Kiln's.
std::uint64_t workspace_of(const AttentionDecision& decision, const Problem& problem) {
  return std::max(decision.cudnn_workspace_bytes, attention_workspace_bytes(problem));
}

/// Decides and fetches whatever has not been.
Result<AttentionDecision> prepare_call(Service& service, const AttentionCall& call,
                                       const Device& device) {
  AttentionDecision decision = KILN_TRY(
      ServiceParts::attention_of(service).prepare(question_of(call, device), device));
  if (decision.backend == AttentionBackend::kKiln)
    KILN_TRY(fetch(service, device, KILN_TRY(plan(call, device))));
  return decision;
}

/// What was prepared; in a capture nothing else is run.
Result<AttentionDecision> decide(Service& service, CUstream_st* stream,
                                 const AttentionCall& call, const Device& device) {
  AttentionCalls& calls = ServiceParts::attention_of(service);
  if (auto known = calls.find(question_of(call, device)))
    return *std::move(known);
  if (KILN_TRY(calls.is_capturing(stream)))
    return refuse(operation_of(call.problem.pass),
                  fmt::format("{}: the stream is being captured, and this problem was "
                              "not prepared on device {} for tensors that are {} to 16 "
                              "bytes: call prepare(), or run it once, before the "
                              "capture begins",
                              to_string(call.problem), device.ordinal,
                              is_aligned(call.tensors) ? "aligned" : "not aligned"));
  return prepare_call(service, call, device);
}

Result<void> check_workspace(const AttentionDecision& decision,
                             const AttentionCall& call) {
  const AttentionTensors& given = call.tensors;
  const std::uint64_t needed = workspace_of(decision, call.problem);
  if (needed == 0 || (given.workspace != nullptr && given.workspace_bytes >= needed))
    return {};
  return refuse(
      operation_of(call.problem.pass),
      fmt::format("it needs a workspace of {} bytes, as prepare() says, and {}", needed,
                  given.workspace == nullptr
                      ? "none was given"
                      : fmt::format("{} were given", given.workspace_bytes)));
}

Result<void> run_cudnn(AttentionCalls& calls, CUstream_st* stream,
                       const AttentionCall& call) {
  float scale = scale_of(call);
  return calls.run_cudnn(call.problem, stream, cudnn_tensors(call, scale),
                         {call.tensors.workspace, call.tensors.workspace_bytes});
}

Result<void> run_attention(Service& service, CUstream_st* stream, const Problem& given,
                           const AttentionTensors& tensors, Pass pass) {
  return at_border([&]() -> Result<void> {
    const Problem problem = KILN_TRY(checked(given, pass));
    const AttentionCall call{.problem = problem, .tensors = tensors};
    const Device device = KILN_TRY(service.device_of(stream));
    KILN_TRY(check_pointers(call));
    if (const float scale = scale_of(call); !std::isfinite(scale))
      return refuse(operation_of(pass), fmt::format("scale is {}", scale));
    const AttentionDecision decision = KILN_TRY(decide(service, stream, call, device));
    KILN_TRY(check_workspace(decision, call));
    if (decision.backend == AttentionBackend::kCudnn)
      return run_cudnn(ServiceParts::attention_of(service), stream, call);
    return run(service, device, stream, KILN_TRY(plan(call, device)));
  });
}

}  // namespace

Result<void> attention_forward(Service& service, CUstream_st* stream,
                               const Problem& problem,
                               const AttentionTensors& tensors) {
  return run_attention(service, stream, problem, tensors, Pass::kForward);
}

Result<void> attention_backward(Service& service, CUstream_st* stream,
                                const Problem& problem,
                                const AttentionTensors& tensors) {
  return run_attention(service, stream, problem, tensors, Pass::kBackward);
}

Result<AttentionChoice> prepare(Service& service, const Device& device,
                                const Problem& given) {
  return at_border([&]() -> Result<AttentionChoice> {
    const Problem problem = KILN_TRY(checked(given, given.pass));
    const AttentionTensors none{};
    AttentionDecision decision =
        KILN_TRY(prepare_call(service, {.problem = problem, .tensors = none}, device));
    return AttentionChoice{.backend = decision.backend,
                           .reason = std::move(decision.reason),
                           .workspace_bytes = workspace_of(decision, problem)};
  });
}

}  // namespace kiln::ops
