#include "cudnn/attention_plans.h"

#include <fmt/format.h>

#include <utility>

#include "attention/cudnn_refusal.h"
#include "attention/problem_codec.h"
#include "util/log.h"
#include "util/try.h"

// One run, one named step a line:
//
//   stream ─ device ─ memory ─┬─ run
//                             └─ rules ─ fetch ─ load on the device ─ run

namespace kiln {
namespace {

/// "attention fwd bf16 … on device 0 (…)": how messages begin.
std::string label(const attention::Problem& problem, const Device& device) {
  return fmt::format("attention {} on {}", to_string(problem),
                     device::label_of(device));
}

/// The rules may refuse what cuDNN would build: a plan that was built need not be
/// right. `problem` is the caller's own: what is captured is refused by more rules than
/// the plan that it shares with what is not.
Result<void> check_rules(const KeyedPlan& keyed, const attention::Problem& problem,
                         const Device& device) {
  const auto verdict = attention::evaluate(problem, device.capability, keyed.version);
  if (verdict.supported)
    return {};
  return fail(ErrorCode::kUnavailable,
              fmt::format("{}: {}", label(problem, device),
                          to_string(verdict.refusals.front(), keyed.version)));
}

}  // namespace

AttentionPlans::AttentionPlans(PlanService& plans, Devices& devices,
                               std::optional<std::filesystem::path> cudnn)
    : plans_(plans), devices_(devices), cudnn_(std::move(cudnn)) {}

std::optional<AttentionPlans::Loaded> AttentionPlans::find(const Place& place) {
  const MutexLock lock(mutex_);
  const auto found = loaded_.find(place);
  return found == loaded_.end() ? std::nullopt : std::optional(found->second);
}

void AttentionPlans::clear() {
  // Destroyed after the lock: that calls cuDNN.
  std::unordered_map<Place, Loaded, PlaceHash> loaded;
  std::map<std::pair<Digest, int>, Pointer> by_key;
  const MutexLock lock(mutex_);
  loaded.swap(loaded_);
  by_key.swap(by_key_);
}

Result<AttentionPlans::PerDevice> AttentionPlans::per_device(const Device& device) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = per_device_.find(device.ordinal); found != per_device_.end())
      return found->second;
  }
  // Two threads may ask at once; the handles of the first that is done are used.
  auto context = KILN_TRY(devices_.context(device));
  PerDevice made{
      .properties =
          KILN_TRY(device::parse_device_properties(KILN_TRY(devices_.profile(device)))),
      .handles = attention::CudnnHandles::of(
          KILN_TRY(cudnn_ ? attention::CudnnLibrary::open(*cudnn_) : plans_.library()),
          std::move(context))};
  const MutexLock lock(mutex_);
  return per_device_.emplace(device.ordinal, std::move(made)).first->second;
}

/// What this process, this machine or cuDNN has of the plan, on the device.
Result<AttentionPlans::Pointer> AttentionPlans::load(
    const KeyedPlan& keyed, const Device& device,
    const std::shared_ptr<attention::CudnnHandles>& handles,
    const std::stop_token& stop) {
  const std::pair place{keyed.key, device.ordinal};
  {
    const MutexLock lock(mutex_);
    if (const auto found = by_key_.find(place); found != by_key_.end())
      return found->second;
  }
  constexpr int kTries = 2;
  for (int left = kTries - 1;; --left) {
    const auto fetched = KILN_TRY(plans_.fetch(keyed, stop));
    if (fetched.object == nullptr)
      return fail(ErrorCode::kUnavailable,
                  fmt::format("{}: cuDNN {} itself refuses it: {}",
                              label(keyed.problem, device), to_string(keyed.version),
                              to_string(fetched.attempts)));
    auto plan = KILN_TRY(attention::decode_plan(fetched.object->payload()));
    auto loaded = attention::LoadedPlan::load(handles, std::move(plan));
    if (loaded) {
      const MutexLock lock(mutex_);
      return by_key_.emplace(place, *std::move(loaded)).first->second;
    }
    // One that was stored may be refused for what its key does not say: then it is a
    // miss. One that was just built is this cuDNN's own doing.
    if (fetched.outcome != Outcome::kHit || left == 0)
      return tl::unexpected(std::move(loaded).error());
    log(LogLevel::kWarning, {"a stored plan is built again, for it cannot be loaded: ",
                             loaded.error().message});
    KILN_TRY(plans_.remove(keyed));
  }
}

Result<AttentionPlans::Loaded> AttentionPlans::fetch_and_load(
    const Place& place, const Device& device, const std::stop_token& stop) {
  const auto [properties, handles] = KILN_TRY(per_device(device));
  const KeyedPlan keyed = KILN_TRY(plans_.key(place.problem, properties));
  KILN_TRY(check_rules(keyed, place.problem, device));
  Loaded loaded{.plan = KILN_TRY(load(keyed, device, handles, stop)),
                .not_captured = {}};
  attention::Problem captured = place.problem;
  captured.capture = true;
  if (auto allowed = check_rules(keyed, captured, device); !allowed)
    loaded.not_captured = std::move(allowed).error();
  const MutexLock lock(mutex_);
  return loaded_.emplace(place, std::move(loaded)).first->second;
}

Result<AttentionPlans::Pointer> AttentionPlans::prepare(
    const attention::Problem& problem, const Device& device,
    const std::stop_token& stop) {
  KILN_TRY(devices_.check(device));
  const Place place{problem, device.ordinal};
  std::optional<Loaded> loaded = find(place);
  if (!loaded) {
    Fields identity = attention::to_fields(problem);
    identity.add("device", std::to_string(device.ordinal));
    loaded = KILN_TRY(loads_
                          .run(identity.digest(), stop,
                               [&] { return fetch_and_load(place, device, stop); })
                          .result);
  }
  KILN_TRY(loaded->plan->prepare());
  return loaded->plan;
}

Result<void> AttentionPlans::run(const attention::Problem& problem, CUstream_st* stream,
                                 std::span<const attention::TensorPointer> tensors,
                                 attention::WorkspaceMemory workspace) {
  const Device device = KILN_TRY(devices_.device_of(stream));
  const auto loaded = find({problem, device.ordinal});
  if (loaded && !loaded->not_captured)
    return loaded->plan->run(stream, tensors, workspace);
  if (KILN_TRY(devices_.is_capturing(stream))) {
    if (loaded)
      return fail(loaded->not_captured->code,
                  loaded->not_captured->message +
                      "; or set problem.capture before the capture, so that it is "
                      "decided for that");
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: the stream is being captured, and this problem was not "
                    "prepared: call prepare() before the capture begins",
                    label(problem, device)));
  }
  const Pointer plan = loaded ? loaded->plan : KILN_TRY(prepare(problem, device));
  return plan->run(stream, tensors, workspace);
}

}  // namespace kiln
