// Attention as programs call it. AttentionDecisions chooses cuDNN's plan or Kiln's own
// kernel. One call, one named step per line:
//
//   problem ─ tensors ─ device ─ decided? ─ workspace ─┬─ cuDNN's plan
//                                                      └─ Kiln's kernels

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "attention/explain.h"
#include "kiln/ops/attention.h"
#include "library/only_loaded.h"
#include "library/service_parts.h"
#include "ops/attention.h"
#include "ops/check.h"
#include "ops/cudnn_tensors.h"
#include "ops/on_device.h"
#include "ops/run.h"
#include "util/public_border.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

using attention::Pass;
using attention::Problem;

Problem problem_of(Pass pass, const AttentionProblem& given,
                   const AttentionOptions& options) {
  const auto& [stats, bias_gradient, deterministic, capture] = options;
  const bool is_backward = pass == Pass::kBackward;
  return {given,
          {.pass = pass,
           .training = is_backward,
           .stats = is_backward || stats,
           .bias_gradient = is_backward && bias_gradient,
           .deterministic = is_backward && deterministic,
           .capture = capture}};
}

AttentionQuestion question_of(const AttentionCall& call, const Device& device) {
  return {
      .problem = call.problem, .device = device.ordinal, .call = properties_of(call)};
}

/// Enough for the chosen backend and for Kiln's kernel, which runs a later call with an
/// unaligned tensor.
std::uint64_t workspace_of(const AttentionDecision& decision, const Problem& problem) {
  return std::max(
      decision.plan == nullptr
          ? 0
          : bytes_before_plan(problem) + decision.plan->plan().workspace_bytes(),
      attention_workspace_bytes(problem));
}

/// Decides and fetches, unless that is done already.
Result<const AttentionDecision*> prepare_call(Service& service,
                                              const AttentionCall& call,
                                              const Device& device) {
  AttentionDecisions& decisions = ServiceParts::attention_of(service);
  const AttentionQuestion question = question_of(call, device);
  const auto* const decision = KILN_TRY(decisions.decide(question, device));
  KILN_TRY(fetch(service, device,
                 decision->plan == nullptr ? KILN_TRY(launches(call, device))
                                           : launches_beside_plan(call)));
  decisions.mark_ready(question);
  return decision;
}

/// The decision that was prepared; else prepares the call, if that is allowed.
Result<const AttentionDecision*> provide(Service& service, const AttentionCall& call,
                                         const Device& device) {
  if (!only_loaded())
    return prepare_call(service, call, device);
  const auto* const known =
      ServiceParts::attention_of(service).find_ready(question_of(call, device));
  if (known != nullptr) {
    if (known->plan != nullptr)
      KILN_TRY(known->plan->prepare());  // for this thread
    return known;
  }
  return fail(ErrorCode::kNotFound, "{} is not prepared on {}", to_string(call.problem),
              device::label_of(device));
}

/// The decision that was prepared; else prepares the call, except during a capture.
Result<const AttentionDecision*> decide(Service& service, CUstream_st* stream,
                                        const AttentionCall& call,
                                        const Device& device) {
  AttentionDecisions& decisions = ServiceParts::attention_of(service);
  AttentionQuestion question = question_of(call, device);
  const auto* const known = decisions.find_ready(question);
  if (known != nullptr && !known->not_captured)
    return known;
  if (!KILN_TRY(ServiceParts::devices_of(service).is_capturing(stream)))
    return known != nullptr ? known : provide(service, call, device);
  question.problem.capture = true;
  if (const auto* const for_captures = decisions.find_ready(question))
    return for_captures;
  if (known != nullptr)
    return fail(known->not_captured->code,
                known->not_captured->message +
                    "; or prepare it with options.capture (in Python: by "
                    "kiln.prepare()) before the capture begins");
  const std::string_view operation = operation_of(call.problem.pass);
  return refuse(
      "{}: the stream is being captured, and this problem was not prepared on device "
      "{} for tensors that are {} to 16 bytes and a scale of that sign: call "
      "prepare_{}(), or run it once, before the capture begins",
      to_string(call.problem), device.ordinal,
      question.call.is_aligned_for_cudnn ? "aligned" : "not aligned", operation);
}

Result<void> check_decided_workspace(const AttentionDecision& decision,
                                     const AttentionCall& call) {
  const AttentionTensors& given = call.tensors;
  const std::uint64_t needed = workspace_of(decision, call.problem);
  if (needed == 0)
    return {};
  constexpr std::uint64_t kAlignment = attention::kWorkspaceAlignment;
  if (reinterpret_cast<std::uintptr_t>(given.workspace) % kAlignment != 0)
    return refuse("workspace is at {}, no multiple of {} bytes", given.workspace,
                  kAlignment);
  if (given.workspace != nullptr && given.workspace_bytes >= needed)
    return {};
  return refuse("it needs a workspace of {} bytes, as prepare_{}() says, and {}",
                needed, operation_of(call.problem.pass),
                given.workspace == nullptr
                    ? "none was given"
                    : fmt::format("{} were given", given.workspace_bytes));
}

Result<void> run_cudnn(Service& service, const Device& device, CUstream_st* stream,
                       const AttentionCall& call, const attention::LoadedPlan& plan) {
  KILN_TRY(run(service, device, stream, launches_before_plan(call)));
  float scale = scale_of(call);
  const std::uint64_t begin = bytes_before_plan(call.problem);
  KILN_TRY(plan.run(stream, cudnn_tensors(call, scale),
                    {static_cast<std::byte*>(call.tensors.workspace) + begin,
                     call.tensors.workspace_bytes - begin}));
  return run(service, device, stream, empty_sequence_launches(call));
}

/// Runs the call in `stream`, on the device whose context is current.
Result<void> run_there(Service& service, const Device& device, CUstream_st* stream,
                       const AttentionCall& call) {
  const std::string_view operation = operation_of(call.problem.pass);
  const AttentionDecision& decision =
      *KILN_TRY(named(operation, decide(service, stream, call, device)));
  KILN_TRY(named(operation, check_decided_workspace(decision, call)));
  if (decision.plan != nullptr)
    return run_cudnn(service, device, stream, call, *decision.plan);
  return run(service, device, stream,
             KILN_TRY(named(operation, launches(call, device))));
}

Result<void> run_attention(Service& service, const Device& device, CUstream_st* stream,
                           const AttentionCall& call) {
  return at_border([&]() -> Result<void> {
    const std::string_view operation = operation_of(call.problem.pass);
    KILN_TRY(named(operation, check_options(call)));
    KILN_TRY(named(operation, check_pointers(call)));
    return on_device(service, {operation, device, stream},
                     [&] { return run_there(service, device, stream, call); });
  });
}

Result<AttentionChoice> prepare_attention(Service& service, const Device& device,
                                          const Problem& problem) {
  return at_border([&]() -> Result<AttentionChoice> {
    const AttentionTensors none{};
    const AttentionCall call{.problem = problem, .tensors = none};
    const std::string_view operation = operation_of(problem.pass);
    KILN_TRY(named(operation, check_options(call)));
    const AttentionDecision& decision =
        *KILN_TRY(named(operation, provide(service, call, device)));
    return AttentionChoice{.backend = decision.plan == nullptr
                                          ? AttentionBackend::kKiln
                                          : AttentionBackend::kCudnn,
                           .reason = decision.reason,
                           .workspace_bytes = workspace_of(decision, problem)};
  });
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): options stay apart from tensors
Result<void> attention_forward(Service& service, const Device& device,
                               CUstream_st* stream, const AttentionProblem& problem,
                               const AttentionTensors& tensors,
                               const AttentionOptions& options) {
  return run_attention(service, device, stream,
                       {problem_of(Pass::kForward, problem, options), tensors});
}

// NOLINTNEXTLINE(readability-function-size): options stay apart from tensors
Result<void> attention_backward(Service& service, const Device& device,
                                CUstream_st* stream, const AttentionProblem& problem,
                                const AttentionTensors& tensors,
                                const AttentionOptions& options) {
  return run_attention(service, device, stream,
                       {problem_of(Pass::kBackward, problem, options), tensors});
}

Result<std::string> explain_attention(Service& service, const Device& device,
                                      const AttentionProblem& problem,
                                      const AttentionOptions& options) {
  return at_border([&]() -> Result<std::string> {
    KILN_TRY(ServiceParts::devices_of(service).check(device));
    nlohmann::ordered_json passes;
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const Problem asked = problem_of(pass, problem, options);
      KILN_TRY(attention::validate(asked));
      passes[pass == Pass::kForward ? "forward" : "backward"] =
          to_json(ServiceParts::attention_of(service).explain(asked, device));
    }
    using Handler = nlohmann::ordered_json::error_handler_t;
    return passes.dump(-1, ' ', false, Handler::replace);  // e.g. loader messages
  });
}

Result<AttentionChoice> prepare_attention_forward(Service& service,
                                                  const Device& device,
                                                  const AttentionProblem& problem,
                                                  const AttentionOptions& options) {
  return prepare_attention(service, device,
                           problem_of(Pass::kForward, problem, options));
}

Result<AttentionChoice> prepare_attention_backward(Service& service,
                                                   const Device& device,
                                                   const AttentionProblem& problem,
                                                   const AttentionOptions& options) {
  return prepare_attention(service, device,
                           problem_of(Pass::kBackward, problem, options));
}

}  // namespace kiln::ops
