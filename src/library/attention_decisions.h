// Decides whether cuDNN's plan or Kiln's own kernel computes an attention problem on a
// device. A decision is made once, logged once and remembered. Of Kiln's kernels this
// knows only whether there is one.

#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attention/explain.h"
#include "build/build_service.h"
#include "cudnn/handles.h"
#include "cudnn/loaded_plan.h"
#include "cudnn/plan_service.h"
#include "device/device_properties.h"
#include "device/devices.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "library/kernel_memory.h"
#include "util/mutex.h"
#include "util/single_flight.h"

namespace kiln {

/// What a decision depends on.
struct AttentionQuestion {
  attention::Problem problem;  // valid
  int device = 0;              // its ordinal
  attention::CallProperties call{};
  friend bool operator==(const AttentionQuestion&, const AttentionQuestion&) = default;
};

}  // namespace kiln

template <>
struct std::hash<kiln::AttentionQuestion> {
  /// Hashes the fields that usually tell a program's questions apart.
  std::size_t operator()(const kiln::AttentionQuestion& question) const noexcept;
};

namespace kiln {

struct AttentionDecision {
  std::string reason{};  // if cuDNN refuses: the rule, its reason, the remedy
  /// cuDNN's loaded plan. Null: Kiln's own kernel runs the problem.
  std::shared_ptr<const attention::LoadedPlan> plan{};
  /// Why the plan must not run in a CUDA graph; nullopt: it may.
  std::optional<Error> not_captured{};
};

/// Thread safety: every method may run concurrently; no lock is held while a plan is
/// built or loaded. Opens nothing before the first question.
/// Fork safety: as Devices.
class AttentionDecisions {
 public:
  /// Both must outlive it.
  AttentionDecisions(BuildService& builds, Devices& devices);

  /// Why cuDNN does not run a problem.
  struct Refusal {
    std::string subject;  // e.g. a rule's id; equal for all refusals of a kind
    std::string reason;   // with the remedy
    bool is_news = true;  // false: no cuDNN was found on this machine
    /// Why there is no plan, or it was not loaded; kCompileFailed: cuDNN refused it.
    std::optional<ErrorCode> plan_error{};
  };
  /// Asks cuDNN. nullopt: it runs the problem, and its plan was loaded. Any failure is
  /// a refusal with its reason. Neither remembers nor logs the answer; ignores
  /// KILN_ATTENTION.
  [[nodiscard]] std::optional<Refusal> ask_cudnn(const AttentionQuestion& question,
                                                 const Device& device);

  /// The full answer for an aligned call with a scale above 0: by every rule and, if
  /// they allow it, by cuDNN itself. Neither remembers nor logs it; ignores
  /// KILN_ATTENTION.
  [[nodiscard]] attention::Explanation explain(const attention::Problem& problem,
                                               const Device& device);

  /// The decision, if mark_ready() was called for it; else null. Decisions live as long
  /// as this object.
  [[nodiscard]] const AttentionDecision* find_ready(const AttentionQuestion& question);

  /// Decides, logs the decision and, if the choice is cuDNN, loads its plan for the
  /// calling thread. Never null. Errors, which are not remembered: kInvalidArgument
  /// (the device); kUnavailable (neither backend runs it, or the one that
  /// KILN_ATTENTION names does not); if another problem's decision also holds for this
  /// one, those of PlanService::fetch() and LoadedPlan::load().
  [[nodiscard]] Result<const AttentionDecision*> decide(
      const AttentionQuestion& question, const Device& device);

  /// Says that all a call needs is loaded: from now on it may run in a capture.
  void mark_ready(const AttentionQuestion& question);

  /// For tests: from now on this cuDNN loads the plans; another one may build them.
  void load_plans_with(const std::filesystem::path& cudnn);

 private:
  struct Entry {
    AttentionDecision decision;  // never changed: callers hold its address
    bool is_ready = false;
  };
  using PlanPointer = std::shared_ptr<const attention::LoadedPlan>;
  /// What is created once per device.
  struct PerDevice {
    device::DeviceProperties properties;
    std::shared_ptr<attention::CudnnHandles> handles;
  };
  using LoadedProblem = std::pair<attention::Problem, AttentionDecision>;
  /// Each problem that cuDNN has to run, with its plan.
  using Answer = tl::expected<std::vector<LoadedProblem>, Refusal>;

  [[nodiscard]] const AttentionDecision* find(const AttentionQuestion& question);
  const AttentionDecision* remember(const AttentionQuestion& question,
                                    AttentionDecision decision);
  [[nodiscard]] Result<const AttentionDecision*> decide_once(
      const AttentionQuestion& question, const Device& device);
  [[nodiscard]] Result<const AttentionDecision*> choose(
      const AttentionQuestion& question, const attention::CallProperties& call,
      const Device& device);
  [[nodiscard]] Answer ask(const AttentionQuestion& question, const Device& device);
  void report(const AttentionQuestion& question, const Device& device,
              const Refusal* refusal, const std::string& what);

  [[nodiscard]] Result<AttentionDecision> load(const attention::Problem& problem,
                                               const Device& device);
  [[nodiscard]] Result<PlanPointer> load_once(
      const KeyedPlan& keyed, const Device& device,
      const std::shared_ptr<attention::CudnnHandles>& handles);
  [[nodiscard]] Result<PlanPointer> fetch_and_load(
      const KeyedPlan& keyed, const Device& device,
      const std::shared_ptr<attention::CudnnHandles>& handles);
  [[nodiscard]] Result<PerDevice> per_device(const Device& device);
  [[nodiscard]] PlanService& plans();

  // Constant after construction.
  BuildService& builds_;
  Devices& devices_;

  SingleFlight<AttentionQuestion, const AttentionDecision*> choices_;
  SingleFlight<LoadPlace, PlanPointer> loads_;
  Mutex mutex_;
  std::optional<std::filesystem::path> loader_ KILN_GUARDED_BY(mutex_);
  // Created at the first question that needs it.
  std::unique_ptr<PlanService> plans_ KILN_GUARDED_BY(mutex_);
  std::map<int, PerDevice> per_device_ KILN_GUARDED_BY(mutex_);
  std::unordered_map<AttentionQuestion, Entry> decisions_ KILN_GUARDED_BY(mutex_);
  // The plans that decisions, or threads about to make one, hold.
  std::unordered_map<LoadPlace, std::weak_ptr<const attention::LoadedPlan>> loaded_
      KILN_GUARDED_BY(mutex_);
  std::set<std::string> reported_
      KILN_GUARDED_BY(mutex_);  // subjects, with device and pass
};

}  // namespace kiln
