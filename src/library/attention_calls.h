// Who computes an attention problem on a device: decided once, said once, remembered.
// Knows cuDNN's plans; of Kiln's own kernels only whether there is one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "attention/kernel_choice.h"
#include "attention/problem_hash.h"
#include "build/build_service.h"
#include "cudnn/attention_plans.h"
#include "cudnn/plan_arguments.h"
#include "cudnn/plan_service.h"
#include "device/devices.h"
#include "kiln/device.h"
#include "kiln/ops/attention.h"
#include "kiln/result.h"
#include "util/mutex.h"
#include "util/single_flight.h"

struct CUstream_st;

namespace kiln {

/// What the choice for a call may depend on.
struct AttentionQuestion {
  attention::Problem problem;        // valid
  int device = 0;                    // its ordinal
  attention::CallProperties call{};  // for Kiln's kernels
  /// As cuDNN wants all tensors, and not only those that Kiln's kernels read by
  /// vectors.
  bool is_aligned_for_cudnn = true;
  friend bool operator==(const AttentionQuestion&, const AttentionQuestion&) = default;
};

struct AttentionDecision {
  ops::AttentionBackend backend = ops::AttentionBackend::kKiln;
  std::string reason;
  std::uint64_t cudnn_workspace_bytes = 0;  // of cuDNN's plan, if that is it
};

/// Thread safety: every method may run concurrently; no lock is held while a plan is
/// built or loaded. Opens nothing before the first question.
/// Fork safety: as Devices.
class AttentionCalls {
 public:
  /// Both must outlive it.
  AttentionCalls(BuildService& builds, Devices& devices);

  /// Why cuDNN does not run it.
  struct Refusal {
    std::string subject;  // a rule's id, say: what is alike in all such refusals
    std::string reason;   // with the remedy
    bool is_news = true;  // false: nobody would expect cuDNN there
  };
  /// nullopt: cuDNN runs it, and its plan is loaded. Whatever else happens is a reason.
  /// Neither remembered nor logged; KILN_ATTENTION is not looked at.
  [[nodiscard]] std::optional<Refusal> ask_cudnn(const AttentionQuestion& question,
                                                 const Device& device);

  /// What remember() was given; null: nothing. Decisions stay as long as this object.
  [[nodiscard]] const AttentionDecision* find(const AttentionQuestion& question);

  /// Decides, logs it, and has cuDNN's plan loaded for the calling thread, if that is
  /// the choice. Errors: kInvalidArgument (the device); kUnavailable (neither runs it;
  /// what KILN_ATTENTION names does not); of a plan that was there before, those of
  /// AttentionPlans::prepare().
  [[nodiscard]] Result<AttentionDecision> prepare(const AttentionQuestion& question,
                                                  const Device& device);

  /// Once all that a call needs is loaded: what find() has is run in a capture, too.
  /// Never null.
  const AttentionDecision* remember(const AttentionQuestion& question,
                                    AttentionDecision decision);

  /// Puts a run of cuDNN's plan on `stream`. Errors: as AttentionPlans::run().
  [[nodiscard]] Result<void> run_cudnn(
      const attention::Problem& problem, CUstream_st* stream,
      std::span<const attention::TensorPointer> tensors,
      attention::WorkspaceMemory workspace);

  [[nodiscard]] Result<bool> is_capturing(CUstream_st* stream) const {
    return devices_.is_capturing(stream);
  }

  /// From now on plans are loaded by that cuDNN, which need not be the one that builds
  /// them: for tests.
  void load_plans_with(const std::filesystem::path& cudnn);

 private:
  struct QuestionHash {
    std::size_t operator()(const AttentionQuestion& question) const noexcept {
      return attention::ProblemHash()(question.problem) +
             static_cast<std::size_t>(question.device);
    }
  };
  struct Backend {
    ops::AttentionBackend backend = ops::AttentionBackend::kKiln;
    std::string reason;
  };
  /// cuDNN's side, made at the first question that asks for it.
  struct Cudnn {
    Cudnn(BuildService& builds, Devices& devices,
          const std::optional<std::filesystem::path>& loader)
        : plans(builds), attention(plans, devices, loader) {}
    PlanService plans;
    AttentionPlans attention;
  };

  [[nodiscard]] Result<Backend> choose_once(const AttentionQuestion& asked,
                                            const Device& device);
  [[nodiscard]] Result<Backend> choose(const AttentionQuestion& question,
                                       const attention::CallProperties& call,
                                       const Device& device);
  void report(const AttentionQuestion& question, const Device& device,
              const std::optional<Refusal>& refusal, const std::string& what);
  [[nodiscard]] Cudnn& cudnn();

  // Constant after construction.
  BuildService& builds_;
  Devices& devices_;

  SingleFlight<Digest, Backend> choices_;
  Mutex mutex_;
  std::optional<std::filesystem::path> loader_ KILN_GUARDED_BY(mutex_);
  std::unique_ptr<Cudnn> cudnn_ KILN_GUARDED_BY(mutex_);
  // Nothing is changed or taken out: who has found one keeps its address.
  std::unordered_map<AttentionQuestion, AttentionDecision, QuestionHash> prepared_
      KILN_GUARDED_BY(mutex_);
  // By chosen_by(): with dropout one answer for both passes.
  std::unordered_map<AttentionQuestion, Backend, QuestionHash> chosen_
      KILN_GUARDED_BY(mutex_);
  std::set<std::string> reported_
      KILN_GUARDED_BY(mutex_);  // subjects, with device and pass
};

}  // namespace kiln
