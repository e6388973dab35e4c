// From an attention problem and a device to cuDNN's execution plan for them: the same
// path as a kernel's, with another builder. The device need not be here.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "attention/cudnn_version.h"
#include "attention/plan.h"
#include "attention/problem.h"
#include "build/build_service.h"
#include "build/cached_builds.h"
#include "compile/pool/worker_pool.h"
#include "cudnn/library.h"
#include "device/device_properties.h"
#include "kiln/result.h"
#include "util/mutex.h"

namespace kiln {

/// A problem for one device and one cuDNN: what a plan is looked for by.
struct KeyedPlan {
  attention::Problem problem;  // as it is built: without what no plan depends on
  device::DeviceProperties device;
  std::vector<attention::BoundProperty> bound;
  std::filesystem::path cudnn;  // the library
  attention::CudnnVersion version;
  Digest key;
  std::string label;  // "attention forward bf16 b2 …"
};

/// A plan, or why cuDNN has none.
struct FetchedPlan {
  /// Null: refused. attention::decode_plan() reads its payload.
  std::shared_ptr<const cache::StoredObject> object;
  Outcome outcome = Outcome::kHit;
  std::optional<Error> not_stored;
  /// Of what was built or refused by this process; empty where the plan was there.
  std::vector<compile::PlanAttempt> attempts;
};

/// "engine 2: CUDNN_STATUS_NOT_SUPPORTED_SHAPE …; heuristics fallback: …": one line.
[[nodiscard]] std::string to_string(const std::vector<compile::PlanAttempt>& attempts);

/// Thread safety: every method may run concurrently.
/// Fork safety: as BuildService; in a forked child all is kUnavailable.
class PlanService {
 public:
  /// `service` must outlive it. Looks for no cuDNN and starts no worker yet.
  explicit PlanService(BuildService& service);

  /// The cuDNN that plans are built with and for: looked for once. Errors:
  /// kUnavailable, where there is none, or it cannot be opened.
  [[nodiscard]] Result<attention::CudnnLibrary> library();

  /// The key: the problem with its strides, cuDNN's version, and what a plan is bound
  /// to of the device. Errors: kUnavailable (no cuDNN here; one before 9.8, which
  /// builds for no device that is elsewhere).
  [[nodiscard]] Result<KeyedPlan> key(const attention::Problem& problem,
                                      const device::DeviceProperties& device);

  /// The plan: from memory, from disk, or built. A refusal by cuDNN is an answer, and
  /// remembered by this process alone. Errors: as WorkerPool::build_plan; kCorrupt
  /// where cuDNN's plan is not what was asked for; kUnavailable on a miss with
  /// KILN_NO_JIT.
  [[nodiscard]] Result<FetchedPlan> fetch(const KeyedPlan& plan,
                                          const std::stop_token& stop = {});

  /// Takes a stored plan out of the cache, so that the next fetch() builds it.
  /// Errors: kIo; kUnavailable (a read-only cache).
  [[nodiscard]] Result<void> remove(const KeyedPlan& plan);

  /// The program that builds plans. Errors: kUnavailable, with every place that was
  /// looked at; Kiln may have been built without it.
  [[nodiscard]] static Result<std::filesystem::path> find_worker(const Config& config);

  /// What listings call it: "cudnn_attention_fwd".
  [[nodiscard]] static std::string_view name_of(const attention::Problem& problem);

  /// What `plan.key` is the digest of.
  [[nodiscard]] static Fields preimage(const KeyedPlan& plan);

 private:
  using Attempts = std::vector<compile::PlanAttempt>;

  [[nodiscard]] Result<NewArtifact> build(const KeyedPlan& plan,
                                          const std::stop_token& stop,
                                          const compile::ProgressCallback& on_phase,
                                          Attempts& attempts);
  [[nodiscard]] Result<compile::PlanJob> job(const KeyedPlan& plan);
  [[nodiscard]] std::optional<Attempts> find_refusal(const Digest& key);

  BuildService& service_;
  compile::WorkerPool workers_;  // plan workers, and of this service's own

  Mutex mutex_;
  std::optional<attention::CudnnLibrary> library_ KILN_GUARDED_BY(mutex_);
  std::map<Digest, Attempts> refusals_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
