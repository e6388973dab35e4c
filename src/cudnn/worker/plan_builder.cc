#include "cudnn/worker/plan_builder.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "attention/plan_binding.h"
#include "util/try.h"

namespace kiln::plan_worker {
namespace {

namespace detail = cudnn_frontend::detail;
using compile::PlanAttempt;

constexpr const char* kNoEngine = "no engine";

/// Owns one of cuDNN's descriptors. Thread safety: one thread.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    status_ = detail::create_descriptor(type, &raw_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)), status_(other.status_) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (raw_ != nullptr)
      std::ignore = detail::destroy_descriptor(raw_);
  }

  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return raw_; }
  /// The status of the first call that failed.
  [[nodiscard]] cudnnStatus_t status() const { return status_; }

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count, const void* values) {
    return note(detail::set_attribute(raw_, name, type, count, values));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
  }
  Descriptor& finalize() { return note(detail::finalize(raw_)); }

  /// 0 if cuDNN does not say.
  [[nodiscard]] std::int64_t count(cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type) const {
    std::int64_t count = 0;
    const bool known = detail::get_attribute(raw_, name, type, 0, &count, nullptr) ==
                       CUDNN_STATUS_SUCCESS;
    return known ? count : 0;
  }
  template <typename Value>
  [[nodiscard]] std::vector<Value> get(cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       std::int64_t most) const {
    std::vector<Value> values(static_cast<std::size_t>(most));
    std::int64_t count = 0;
    if (detail::get_attribute(raw_, name, type, most, &count, values.data()) !=
        CUDNN_STATUS_SUCCESS)
      count = 0;
    values.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, most)));
    return values;
  }
  [[nodiscard]] std::int64_t integer(cudnnBackendAttributeName_t name) const {
    const auto values = get<std::int64_t>(name, CUDNN_TYPE_INT64, 1);
    return values.empty() ? 0 : values.front();
  }

 private:
  Descriptor& note(cudnnStatus_t status) {
    if (status_ == CUDNN_STATUS_SUCCESS)
      status_ = status;
    return *this;
  }

  cudnnBackendDescriptor_t raw_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

PlanAttempt attempt(std::string what, cudnnStatus_t status) {
  return {.what = std::move(what),
          .status = detail::get_error_string(status),
          .message = status == CUDNN_STATUS_SUCCESS ? std::string()
                                                    : detail::get_last_error_string_()};
}

/// One way to run the graph.
struct Candidate {
  Descriptor config;
  std::string name;  // "engine 2"
  bool is_deterministic = true;
};

Candidate describe(Descriptor config) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  std::ignore = detail::get_attribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
  constexpr std::int64_t kMostNotes = CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
  const auto notes = engine.get<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, kMostNotes);
  return {
      .config = std::move(config),
      .name = fmt::format("engine {}", engine.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)),
      .is_deterministic =
          std::ranges::find(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ==
          notes.end()};
}

/// The candidates that one mode of cuDNN's heuristics returns, best first.
std::vector<Candidate> ask_heuristics(const ProblemGraph& graph,
                                      const DeviceProperties& device,
                                      cudnnBackendHeurMode_t mode, std::string name,
                                      std::vector<PlanAttempt>& attempts) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.operation_graph())
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device->get_ptr())
      .finalize();
  if (heuristics.status() != CUDNN_STATUS_SUCCESS) {
    attempts.push_back(attempt(std::move(name), heuristics.status()));
    return {};
  }
  const std::int64_t count =
      heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().raw());
  }
  std::int64_t filled = 0;
  std::ignore =
      detail::get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &filled, raw.data());
  if (filled <= 0)  // cuDNN reports success, but it is a refusal
    attempts.push_back({std::move(name), kNoEngine, ""});
  std::vector<Candidate> candidates;
  for (std::int64_t i = 0; i < std::min(filled, count); ++i)
    candidates.push_back(describe(std::move(configs[static_cast<std::size_t>(i)])));
  return candidates;
}

std::vector<Candidate> forced_candidate(const ProblemGraph& graph,
                                        const DeviceProperties& device,
                                        const ForcedEngine& forced,
                                        std::vector<PlanAttempt>& attempts) {
  std::string name = fmt::format("engine {}", forced.id);
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.operation_graph())
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &forced.id)
      .set(CUDNN_ATTR_ENGINE_DEVICEPROP, device->get_ptr())
      .finalize();
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine.raw());
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const auto& [type, value] : forced.knobs) {
    choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    choices.back()
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type)
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value)
        .finalize();
    raw.push_back(choices.back().raw());
  }
  config
      .set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<std::int64_t>(raw.size()), raw.data())
      .finalize();
  for (const cudnnStatus_t status : {engine.status(), config.status()}) {
    if (status != CUDNN_STATUS_SUCCESS) {
      attempts.push_back(attempt(std::move(name), status));
      return {};
    }
  }
  std::vector<Candidate> candidates;
  candidates.push_back({.config = std::move(config), .name = std::move(name)});
  return candidates;
}

Result<attention::Plan> finished_plan(const Descriptor& built,
                                      const ProblemGraph& graph,
                                      std::string_view device_json) {
  auto plan = KILN_TRY(graph.describe());
  const auto chars = built.get<char>(
      CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
      built.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR));
  plan.json.assign(chars.begin(), chars.end());
  plan.json.resize(plan.json.find_last_not_of('\0') + 1);
  KILN_TRY(attention::read_json(plan));
  plan.engine_workspace_bytes = static_cast<std::uint64_t>(
      built.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  plan.cudnn = attention::decoded(static_cast<long>(detail::get_backend_version()));
  plan.bound = KILN_TRY(attention::binding_of(device_json));
  KILN_TRY(attention::check_fully(plan));
  return plan;
}

/// A device as cuDNN's descriptor, and as the JSON that it was made from.
struct PlannedDevice {
  const DeviceProperties& properties;
  std::string_view json;
};

/// Tries them in order until one builds.
std::optional<attention::Plan> first_that_builds(
    const std::vector<Candidate>& candidates, const attention::Problem& problem,
    const ProblemGraph& graph, const PlannedDevice& device,
    std::vector<PlanAttempt>& attempts) {
  for (const Candidate& candidate : candidates) {
    if (problem.deterministic && !candidate.is_deterministic) {
      attempts.push_back({candidate.name, "not tried", "it is not deterministic"});
      continue;
    }
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config.raw())
        .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.properties->get_ptr())
        .finalize();
    attempts.push_back(attempt(candidate.name, plan.status()));
    if (plan.status() != CUDNN_STATUS_SUCCESS)
      continue;
    auto finished = finished_plan(plan, graph, device.json);
    if (finished)
      return *std::move(finished);
    // The plan of the next engine may be usable.
    attempts.back() = {candidate.name, "not usable", finished.error().message};
  }
  return std::nullopt;
}

/// A likely reason if even the fallback, which normally has engines, returns none:
/// cuDNN finds no NVRTC of its own CUDA version. Seen with a cuDNN for CUDA 12 and an
/// NVRTC of CUDA 13. Empty: that is not the reason.
std::string missing_nvrtc() {
  using GetVersion = decltype(cudnnGetCudartVersion);
  auto* const get_version = reinterpret_cast<GetVersion*>(
      ::dlsym(cudnn_frontend::cudnn_dlhandle, "cudnnGetCudartVersion"));
  if (get_version == nullptr)
    return "";
  const std::size_t major = get_version() / 1000;
  const std::string name = fmt::format("libnvrtc.so.{}", major);
  if (void* const open = ::dlopen(name.c_str(), RTLD_LAZY)) {
    ::dlclose(open);
    return "";
  }
  return fmt::format(
      "this cuDNN is of CUDA {} and finds no {}: set KILN_NVRTC to that library", major,
      name);
}

}  // namespace

Result<Built> build_plan(const attention::Problem& problem, const ProblemGraph& graph,
                         const DeviceProperties& device, std::string_view device_json) {
  Built built;
  const auto try_all = [&](const std::vector<Candidate>& candidates) {
    built.plan = first_that_builds(candidates, problem, graph, {device, device_json},
                                   built.attempts);
    return built.plan.has_value();
  };
  if (const ForcedEngine forced = graph.forced_engine(); forced.id != -1) {
    try_all(forced_candidate(graph, device, forced, built.attempts));
    return built;
  }
  // Mode A returns nothing if it knows no engine. Then only the fallback's engines say
  // why they cannot run.
  if (try_all(ask_heuristics(graph, device, CUDNN_HEUR_MODE_A, "heuristics A",
                             built.attempts)))
    return built;
  const auto fallback = ask_heuristics(graph, device, CUDNN_HEUR_MODE_FALLBACK,
                                       "heuristics fallback", built.attempts);
  // Not a refusal of the problem: this machine lacks something.
  if (fallback.empty() && built.attempts.back().status == kNoEngine) {
    if (std::string why = missing_nvrtc(); !why.empty())
      return fail(ErrorCode::kUnavailable, std::move(why));
  }
  try_all(fallback);
  return built;
}

}  // namespace kiln::plan_worker
