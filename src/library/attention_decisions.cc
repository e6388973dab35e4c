#include "library/attention_decisions.h"

#include <fmt/format.h>

#include <cstdint>

#include "attention/evaluate.h"
#include "util/log.h"
#include "util/try.h"

// One question, one named step per line:
//
//   device ─ remembered? ─ setting ─ rules ─ cuDNN's plan ─┬─ cuDNN
//                                                          └─ Kiln's own kernel

namespace kiln {
namespace {

/// "attention fwd bf16 … on device 0 (…)": how messages begin.
std::string label(const attention::Problem& problem, const Device& device) {
  return fmt::format("attention {} on {}", to_string(problem),
                     device::label_of(device));
}

/// The problems whose plans cuDNN must load to run `problem`. With dropout: both
/// passes, with the options of most calls.
std::vector<attention::Problem> plans_of(const attention::Problem& problem) {
  auto problems = attention::run_together(problem);
  if (problems.size() > 1) {
    for (attention::Problem& each : problems) each.deterministic = each.capture = false;
  }
  return problems;
}

/// The question that decides `question`, too. With dropout both passes share a backend,
/// so alignment is left out.
AttentionQuestion shared(AttentionQuestion question) {
  question.problem = plans_of(question.problem).front();
  if (question.problem.dropout > 0)
    question.call.is_aligned = question.call.is_aligned_for_cudnn = true;
  return question;
}

/// The rules may refuse a problem that cuDNN builds: the plan may still be wrong.
Result<void> check_rules(const attention::Problem& problem, const Device& device,
                         attention::CudnnVersion cudnn) {
  const auto verdict = attention::evaluate(problem, device.capability, cudnn);
  if (verdict.supported)
    return {};
  return fail(ErrorCode::kUnavailable, "{}: {}", label(problem, device),
              to_string(verdict.refusals.front(), cudnn));
}

}  // namespace

AttentionDecisions::AttentionDecisions(BuildService& builds, Devices& devices)
    : builds_(builds), devices_(devices) {}

const AttentionDecision* AttentionDecisions::find_ready(
    const AttentionQuestion& question) {
  const MutexLock lock(mutex_);
  const auto found = decisions_.find(question);
  return found == decisions_.end() || !found->second.is_ready ? nullptr
                                                              : &found->second.decision;
}

const AttentionDecision* AttentionDecisions::find(const AttentionQuestion& question) {
  const MutexLock lock(mutex_);
  const auto found = decisions_.find(question);
  return found == decisions_.end() ? nullptr : &found->second.decision;
}

const AttentionDecision* AttentionDecisions::remember(const AttentionQuestion& question,
                                                      AttentionDecision decision) {
  const MutexLock lock(mutex_);
  const auto [entry, is_new] = decisions_.try_emplace(question);
  if (is_new)  // else the caller destroys it, and perhaps its plan, without the lock
    entry->second.decision = std::move(decision);
  return &entry->second.decision;
}

void AttentionDecisions::mark_ready(const AttentionQuestion& question) {
  const MutexLock lock(mutex_);
  decisions_.at(question).is_ready = true;
}

Result<const AttentionDecision*> AttentionDecisions::decide(
    const AttentionQuestion& question, const Device& device) {
  KILN_TRY(devices_.check(device));
  const AttentionDecision* decision = find(question);
  if (decision == nullptr)
    decision = KILN_TRY(decide_once(question, device));
  if (decision->plan != nullptr)
    KILN_TRY(decision->plan->prepare());
  return decision;
}

/// Decides once among the threads of this process, and once for all questions that
/// share the decision.
Result<const AttentionDecision*> AttentionDecisions::decide_once(
    const AttentionQuestion& question, const Device& device) {
  const AttentionQuestion common = shared(question);
  const auto choose_common = [&]() -> Result<const AttentionDecision*> {
    // Another thread may have finished between our look and our turn.
    const AttentionDecision* const found = find(common);
    return found != nullptr ? found : choose(common, question.call, device);
  };
  const auto* const chosen = KILN_TRY(choices_.run(common, {}, choose_common).result);
  if (common == question)
    return chosen;
  AttentionDecision own{};
  if (chosen->plan != nullptr)
    own = KILN_TRY(load(question.problem, device));
  own.reason = chosen->reason;
  return remember(question, std::move(own));
}

/// `call` is only for messages: it belongs to the first call that asked.
Result<const AttentionDecision*> AttentionDecisions::choose(
    const AttentionQuestion& question, const attention::CallProperties& call,
    const Device& device) {
  const std::string about = label(question.problem, device);
  const AttentionSetting setting = builds_.config().attention;
  const std::string_view set_by = builds_.config().attention_by.name;
  const attention::OwnKernel kernel =
      attention::own_kernel(question.problem, device.capability, call);
  if (setting == AttentionSetting::kKiln) {
    if (!kernel.supported)
      return fail(ErrorCode::kUnavailable, "{}: {}=kiln, and {}", about, set_by,
                  kernel.reason);
    report(question, device, nullptr,
           fmt::format("Kiln's {}: {}=kiln", kernel.reason, set_by));
    return remember(question, {.reason = fmt::format("{}=kiln", set_by)});
  }
  auto answer = ask(question, device);
  if (answer) {
    const auto version = to_string(KILN_TRY(plans().library()).version());
    report(question, device, nullptr, "cuDNN " + version);
    for (auto& [problem, decision] : *answer) {
      decision.reason = fmt::format("cuDNN {} runs it", version);
      remember({problem, question.device, question.call}, std::move(decision));
    }
    return find(question);
  }
  const Refusal& refusal = answer.error();
  if (setting == AttentionSetting::kCudnn)
    return fail(ErrorCode::kUnavailable, "{}: {}=cudnn, and {}", about, set_by,
                refusal.reason);
  if (!kernel.supported)
    return fail(ErrorCode::kUnavailable, "{}: {}; and cuDNN does not run it: {}", about,
                kernel.reason, refusal.reason);
  report(question, device, &refusal, fmt::format("Kiln's {}", kernel.reason));
  return remember(question, {.reason = refusal.reason});
}

std::optional<AttentionDecisions::Refusal> AttentionDecisions::ask_cudnn(
    const AttentionQuestion& question, const Device& device) {
  auto answer = ask(question, device);
  return answer ? std::nullopt : std::optional(std::move(answer).error());
}

attention::Explanation AttentionDecisions::explain(const attention::Problem& problem,
                                                   const Device& device) {
  using attention::Choice;
  using attention::Probe;
  const auto library = plans().library();
  if (!library) {
    const attention::OwnKernel kernel =
        attention::own_kernel(problem, device.capability);
    const Choice chosen = kernel.supported ? Choice::kKiln : Choice::kNone;
    const Probe probe{.message = library.error().message};
    return {.chosen = chosen,
            .cudnn = {},
            .probe = probe,
            .kiln = kernel,
            .steps = {{.problem = problem,
                       .chosen = chosen,
                       .cudnn = {},
                       .probe = probe,
                       .kiln = kernel}}};
  }
  bool is_refused = false;
  const auto ask = [&](const attention::Problem& step) -> Probe {
    const auto refusal = ask_cudnn({.problem = step, .device = device.ordinal}, device);
    if (!refusal)
      return {.ran = true, .built = true, .status = "built", .message = ""};
    is_refused = true;
    const bool is_by_cudnn = refusal->plan_error == ErrorCode::kCompileFailed;
    const std::string_view status = is_by_cudnn ? "refused"
                                    : refusal->plan_error
                                        ? attention::probe_status(*refusal->plan_error)
                                        : "not_run";
    return {.ran = is_by_cudnn,
            .built = false,
            .status = std::string(status),
            .message = refusal->reason};
  };
  attention::Explanation answer =
      attention::explain({problem, device.capability, library->version()},
                         {.parallelism = {}, .probe = ask});
  // Without a plan a call turns to Kiln's kernel, even where every rule allows cuDNN.
  if (is_refused && answer.chosen == Choice::kCudnn) {
    answer.chosen = answer.kiln.supported ? Choice::kKiln : Choice::kNone;
    for (attention::Step& step : answer.steps) step.chosen = answer.chosen;
  }
  return answer;
}

/// Checks the call's properties, whether cuDNN is here, the rules, and then cuDNN
/// itself, which builds and loads the plan.
AttentionDecisions::Answer AttentionDecisions::ask(const AttentionQuestion& question,
                                                   const Device& device) {
  if (!question.call.is_aligned_for_cudnn)
    return tl::unexpected(Refusal{
        .subject = "call.aligned",
        .reason = "cuDNN does not run it: a tensor does not begin at a multiple of 16 "
                  "bytes; align all of them"});
  if (!question.call.has_positive_scale)
    return tl::unexpected(Refusal{
        .subject = "call.scale",
        .reason =
            "cuDNN is not asked: the scale is not above 0; negate or scale q instead"});
  const auto library = plans().find_library();
  if (!library)
    return tl::unexpected(
        Refusal{.subject = "cudnn", .reason = library.error().message});
  if (!*library)
    return tl::unexpected(Refusal{.subject = "cudnn",
                                  .reason = std::string(attention::kNoCudnn),
                                  .is_news = false});
  const attention::CudnnVersion version = (*library)->version();
  if (auto why = attention::why_not_cudnn(question.problem, device.capability, version))
    return tl::unexpected(
        Refusal{.subject = std::move(why->id), .reason = std::move(why->text)});
  std::vector<LoadedProblem> loaded;
  for (const attention::Problem& problem : plans_of(question.problem)) {
    auto plan = load(problem, device);
    if (!plan) {
      // Not asked, if its worker or the device's properties are missing, say.
      const bool is_there = plan.error().code != ErrorCode::kUnavailable;
      return tl::unexpected(Refusal{
          .subject = "plan." + std::string(to_string(plan.error().code)),
          .reason = fmt::format("cuDNN {} {} in the {} pass: {}", to_string(version),
                                is_there ? "failed" : "cannot be used",
                                word_of(problem.pass), plan.error().message),
          .plan_error = plan.error().code});
    }
    loaded.emplace_back(problem, *std::move(plan));
  }
  return loaded;
}

/// Logs a choice at info, but an unexpected refusal by cuDNN as a warning: once per
/// kind of refusal, device and pass, however many lengths a program has.
void AttentionDecisions::report(const AttentionQuestion& question, const Device& device,
                                const Refusal* refusal, const std::string& what) {
  const std::string line =
      fmt::format("{}: run by {}{}", label(question.problem, device), what,
                  refusal != nullptr ? ": " + refusal->reason : std::string());
  bool warns = refusal != nullptr && refusal->is_news;
  if (warns) {
    const MutexLock lock(mutex_);
    warns = reported_
                .insert(fmt::format("{} {} {}", refusal->subject, device.ordinal,
                                    word_of(question.problem.pass)))
                .second;
  }
  log(warns ? LogLevel::kWarning : LogLevel::kInfo, {line});
}

/// cuDNN's plan of exactly this problem, ready for the calling thread. Problems may
/// share a plan, yet the rules are asked for each: they may depend on options that no
/// plan depends on.
Result<AttentionDecision> AttentionDecisions::load(const attention::Problem& problem,
                                                   const Device& device) {
  const auto [properties, handles] = KILN_TRY(per_device(device));
  const KeyedPlan keyed = KILN_TRY(plans().key(problem, properties));
  KILN_TRY(check_rules(problem, device, keyed.version));
  AttentionDecision made{.plan = KILN_TRY(load_once(keyed, device, handles))};
  KILN_TRY(made.plan->prepare());
  attention::Problem captured = problem;
  captured.capture = true;
  if (auto allowed = check_rules(captured, device, keyed.version); !allowed)
    made.not_captured = std::move(allowed).error();
  return made;
}

/// One load per plan and device among the threads of this process, whichever questions
/// they ask.
Result<AttentionDecisions::PlanPointer> AttentionDecisions::load_once(
    const KeyedPlan& keyed, const Device& device,
    const std::shared_ptr<attention::CudnnHandles>& handles) {
  const LoadPlace place{keyed.key, device.ordinal};
  const auto load = [&]() -> Result<PlanPointer> {
    {
      const MutexLock lock(mutex_);
      const auto found = loaded_.find(place);
      if (auto known = found == loaded_.end() ? nullptr : found->second.lock())
        return known;
    }
    auto loaded = KILN_TRY(fetch_and_load(keyed, device, handles));
    const MutexLock lock(mutex_);
    loaded_[place] = loaded;
    return loaded;
  };
  return loads_.run(place, {}, load).result;
}

/// Takes the plan from memory, disk or cuDNN, and loads it on the device.
Result<AttentionDecisions::PlanPointer> AttentionDecisions::fetch_and_load(
    const KeyedPlan& keyed, const Device& device,
    const std::shared_ptr<attention::CudnnHandles>& handles) {
  constexpr int kTries = 2;
  for (int left = kTries - 1;; --left) {
    const auto fetched = KILN_TRY(plans().fetch(keyed, {}, device.ordinal));
    if (fetched.object == nullptr)
      return fail(ErrorCode::kCompileFailed, "{}: cuDNN {} itself refuses it: {}",
                  label(keyed.problem, device), to_string(keyed.version),
                  to_string(fetched.attempts));
    auto plan = KILN_TRY(attention::decode_plan(fetched.object->payload()));
    auto loaded = attention::LoadedPlan::load(handles, std::move(plan));
    // A stored plan may be refused for a reason that its key does not cover: that is a
    // miss. The refusal of a new plan is this cuDNN's own error.
    if (loaded || fetched.outcome != FetchOutcome::kHit || left == 0)
      return loaded;
    log(LogLevel::kWarning, {"a stored plan is built again, for it cannot be loaded: ",
                             loaded.error().message});
    KILN_TRY(plans().remove(keyed));
  }
}

Result<AttentionDecisions::PerDevice> AttentionDecisions::per_device(
    const Device& device) {
  std::optional<std::filesystem::path> loader;
  {
    const MutexLock lock(mutex_);
    if (const auto found = per_device_.find(device.ordinal); found != per_device_.end())
      return found->second;
    loader = loader_;
  }
  // Two threads may get here at once; the handles of the first to finish are used.
  auto context = KILN_TRY(devices_.context(device));
  auto cudnn =
      KILN_TRY(loader ? attention::CudnnLibrary::open(*loader) : plans().library());
  PerDevice made{
      .properties =
          KILN_TRY(device::parse_device_properties(KILN_TRY(devices_.profile(device)))),
      .handles = attention::CudnnHandles::of(cudnn, std::move(context))};
  const MutexLock lock(mutex_);
  return per_device_.emplace(device.ordinal, std::move(made)).first->second;
}

PlanService& AttentionDecisions::plans() {
  const MutexLock lock(mutex_);
  if (plans_ == nullptr)
    plans_ = std::make_unique<PlanService>(builds_);
  return *plans_;
}

void AttentionDecisions::load_plans_with(const std::filesystem::path& cudnn) {
  const MutexLock lock(mutex_);
  loader_ = cudnn;
}

}  // namespace kiln

std::size_t std::hash<kiln::AttentionQuestion>::operator()(
    const kiln::AttentionQuestion& question) const noexcept {
  const kiln::attention::Problem& p = question.problem;
  std::size_t mixed = static_cast<std::size_t>(question.device);
  for (const std::int64_t each :
       {p.batch, p.heads, p.kv_heads, p.sq, p.skv, p.dqk, p.dv, p.q.sequence,
        p.k.sequence, static_cast<std::int64_t>(p.pass),
        static_cast<std::int64_t>(p.mask)}) {
    constexpr std::size_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / the golden ratio
    mixed ^= std::hash<std::int64_t>()(each) + kGolden + (mixed << 6U) + (mixed >> 2U);
  }
  return mixed;
}
