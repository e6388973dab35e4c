#include "library/attention_calls.h"

#include <fmt/format.h>

#include <utility>

#include "attention/both_passes.h"
#include "attention/cudnn_refusal.h"
#include "attention/explain.h"
#include "attention/problem_codec.h"
#include "cudnn/installed_cudnn.h"
#include "util/log.h"
#include "util/try.h"

// One question, one named step a line:
//
//   device ─ remembered? ─ setting ─ rules ─ cuDNN's plan ─┬─ cuDNN
//                                                          └─ Kiln's own kernel

namespace kiln {
namespace {

using ops::AttentionBackend;

std::string label(const AttentionQuestion& question, const Device& device) {
  return fmt::format("attention {} on {}", to_string(question.problem),
                     device::label_of(device));
}

/// What equal questions have alike, and no others.
Digest digest_of(const AttentionQuestion& question) {
  Fields identity = attention::to_fields(question.problem);
  identity.add("device", std::to_string(question.device));
  const auto flag = [&](std::string_view name, bool value) {
    identity.add(name, value ? "1" : "0");
  };
  flag("aligned", question.call.is_aligned);
  flag("aligned_for_cudnn", question.is_aligned_for_cudnn);
  flag("positive", question.call.has_positive_scale);
  return identity.digest();
}

/// The question whose answer is that of `question`, too. Where both passes must agree,
/// it is not left to an address which backend they get.
AttentionQuestion shared(AttentionQuestion question) {
  question.problem = attention::chosen_by(question.problem);
  if (question.problem.dropout > 0)
    question.call.is_aligned = question.is_aligned_for_cudnn = true;
  return question;
}

}  // namespace

AttentionCalls::AttentionCalls(BuildService& builds, Devices& devices)
    : builds_(builds), devices_(devices) {}

const AttentionDecision* AttentionCalls::find(const AttentionQuestion& question) {
  const MutexLock lock(mutex_);
  const auto found = prepared_.find(question);
  return found == prepared_.end() ? nullptr : &found->second;
}

Result<AttentionDecision> AttentionCalls::prepare(const AttentionQuestion& question,
                                                  const Device& device) {
  KILN_TRY(devices_.check(device));
  Backend chosen = KILN_TRY(choose_once(question, device));
  AttentionDecision decision{.backend = chosen.backend,
                             .reason = std::move(chosen.reason)};
  if (decision.backend == AttentionBackend::kCudnn) {
    const auto plan = KILN_TRY(cudnn().attention.prepare(question.problem, device));
    decision.cudnn_workspace_bytes = plan->plan().workspace_bytes();
  }
  return decision;
}

const AttentionDecision* AttentionCalls::remember(const AttentionQuestion& question,
                                                  AttentionDecision decision) {
  const MutexLock lock(mutex_);
  return &prepared_.emplace(question, std::move(decision)).first->second;
}

/// One choice among the threads of this process.
Result<AttentionCalls::Backend> AttentionCalls::choose_once(
    const AttentionQuestion& asked, const Device& device) {
  const AttentionQuestion question = shared(asked);
  const auto known = [&]() -> std::optional<Backend> {
    const MutexLock lock(mutex_);
    const auto found = chosen_.find(question);
    return found == chosen_.end() ? std::nullopt : std::optional(found->second);
  };
  if (auto found = known())
    return *std::move(found);
  return choices_
      .run(digest_of(question), {},
           [&]() -> Result<Backend> {
             // Another thread may have finished between our look and our turn.
             if (auto found = known())
               return *std::move(found);
             Backend chosen = KILN_TRY(choose(question, asked.call, device));
             const MutexLock lock(mutex_);
             return chosen_.emplace(question, std::move(chosen)).first->second;
           })
      .result;
}

/// `call` is that of whoever asks first: its kernel is the one that is named.
Result<AttentionCalls::Backend> AttentionCalls::choose(
    const AttentionQuestion& question, const attention::CallProperties& call,
    const Device& device) {
  const AttentionSetting setting = builds_.config().attention;
  const attention::OwnKernel kernel =
      attention::own_kernel(question.problem, device.capability, call);
  if (setting == AttentionSetting::kKiln) {
    if (!kernel.supported)
      return fail(ErrorCode::kUnavailable,
                  fmt::format("{}: KILN_ATTENTION=kiln, and {}",
                              label(question, device), kernel.reason));
    report(question, device, {},
           fmt::format("Kiln's {}: KILN_ATTENTION", kernel.reason));
    return Backend{AttentionBackend::kKiln, "KILN_ATTENTION=kiln"};
  }
  const std::optional<Refusal> refusal = ask_cudnn(question, device);
  if (!refusal) {
    const auto version = to_string(KILN_TRY(cudnn().plans.library()).version());
    report(question, device, {}, "cuDNN " + version);
    return Backend{AttentionBackend::kCudnn, fmt::format("cuDNN {} runs it", version)};
  }
  if (setting == AttentionSetting::kCudnn)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{}: KILN_ATTENTION=cudnn, and {}", label(question, device),
                            refusal->reason));
  if (!kernel.supported)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{}: {}; {}", label(question, device), refusal->reason,
                            kernel.reason));
  report(question, device, refusal, fmt::format("Kiln's {}", kernel.reason));
  return Backend{AttentionBackend::kKiln, refusal->reason};
}

/// By what the call is like, by whether cuDNN is here, by the rules, and by cuDNN
/// itself, which builds the plan and loads it.
std::optional<AttentionCalls::Refusal> AttentionCalls::ask_cudnn(
    const AttentionQuestion& question, const Device& device) {
  if (!question.is_aligned_for_cudnn)
    return Refusal{"call.aligned",
                   "cuDNN does not run it: a tensor does not begin at a multiple of 16 "
                   "bytes; align all of them"};
  if (!question.call.has_positive_scale)
    return Refusal{"call.scale",
                   "cuDNN is not asked: the scale is not above 0; scale the query"};
  const auto library = cudnn().plans.library();
  if (!library) {
    const auto found = attention::find_cudnn(builds_.config().cudnn.value_or(""),
                                             LibraryPlaces::of_process());
    return Refusal{"cudnn", library.error().message, !found || !found->empty()};
  }
  const attention::CudnnVersion version = library->version();
  if (auto why = attention::why_not_cudnn(question.problem, device.capability, version))
    return Refusal{std::move(why->id), std::move(why->text)};
  const auto problems = attention::run_together(question.problem);
  for (attention::Problem problem : problems) {
    if (problems.size() > 1)  // the plans that most calls run
      problem.deterministic = problem.capture = false;
    const auto prepared = cudnn().attention.prepare(problem, device);
    if (!prepared)
      return Refusal{
          "plan." + std::string(to_string(prepared.error().code)),
          fmt::format("cuDNN {} failed in the {} pass: {}", to_string(version),
                      to_string(problem.pass), prepared.error().message)};
  }
  return std::nullopt;
}

/// An ordinary choice is information. That cuDNN does not do what it is there for is a
/// warning, but each kind of refusal one, however many lengths a program has.
void AttentionCalls::report(const AttentionQuestion& question, const Device& device,
                            const std::optional<Refusal>& refusal,
                            const std::string& what) {
  const std::string line =
      fmt::format("{}: run by {}{}", label(question, device), what,
                  refusal ? ": " + refusal->reason : std::string());
  bool warns = refusal && refusal->is_news;
  if (warns) {
    const MutexLock lock(mutex_);
    warns = reported_
                .insert(fmt::format("{} {} {}", refusal->subject, device.ordinal,
                                    to_string(question.problem.pass)))
                .second;
  }
  log(warns ? LogLevel::kWarning : LogLevel::kInfo, {line});
}

Result<void> AttentionCalls::run_cudnn(
    const attention::Problem& problem, CUstream_st* stream,
    std::span<const attention::TensorPointer> tensors,
    attention::WorkspaceMemory workspace) {
  return cudnn().attention.run(problem, stream, tensors, workspace);
}

void AttentionCalls::load_plans_with(const std::filesystem::path& cudnn) {
  const MutexLock lock(mutex_);
  loader_ = cudnn;
}

AttentionCalls::Cudnn& AttentionCalls::cudnn() {
  const MutexLock lock(mutex_);
  if (cudnn_ == nullptr)
    cudnn_ = std::make_unique<Cudnn>(builds_, devices_, loader_);
  return *cudnn_;
}

}  // namespace kiln
