// From an attention problem and a device to cuDNN's execution plan for them: the same
// path as a kernel's, with another builder. The device need not be on this machine.

#pragma once

#include <map>
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
#include "util/single_flight.h"

namespace kiln {

/// A problem for one device and one cuDNN, with the key of its plan.
struct KeyedPlan {
  attention::Problem problem;  // without options that no plan depends on
  device::DeviceProperties device;
  std::vector<attention::BoundProperty> bound;
  std::filesystem::path cudnn;  // the library
  attention::CudnnVersion version;
  Digest key;
  std::string label;  // "attention fwd bf16 b2 …"
};

/// A plan, or why cuDNN has none: then `object` is null.
/// attention::decode_plan() reads the object's payload.
struct FetchedPlan : Fetched {
  /// cuDNN's attempts, if this process built the plan or was refused it; empty if the
  /// plan was found.
  std::vector<compile::PlanAttempt> attempts{};
};

/// "engine 2: CUDNN_STATUS_NOT_SUPPORTED_SHAPE …; heuristics fallback: …": one line.
[[nodiscard]] std::string to_string(const std::vector<compile::PlanAttempt>& attempts);

/// Thread safety: every method may run concurrently.
/// Fork safety: as BuildService; in a forked child every call returns kUnavailable.
class PlanService {
 public:
  /// `service` must outlive it. Looks for no cuDNN and starts no worker yet. `closing`
  /// ends a question about cuDNN that a worker answers.
  explicit PlanService(BuildService& service, std::stop_token closing = {});

  /// A cuDNN as a plan worker has called it.
  struct AskedCudnn {
    std::filesystem::path path;
    compile::CudnnDescription is;
  };
  /// Asks a worker about the cuDNN that is found first; nullopt: none is found. It is
  /// searched for until there is one, and asked about once. Errors: kUnavailable, with
  /// the remedy: it cannot be used here, or there is no worker to ask; kCancelled.
  [[nodiscard]] Result<std::optional<AskedCudnn>> ask_library();

  /// The cuDNN that plans are built with and for, opened once a worker has called it;
  /// nullopt: none is found. Errors: as ask_library(); kUnavailable, if it cannot be
  /// opened here.
  [[nodiscard]] Result<std::optional<attention::CudnnLibrary>> find_library();
  /// The same. Errors besides: kUnavailable, if there is none.
  [[nodiscard]] Result<attention::CudnnLibrary> library();

  /// Makes the key from the problem with its strides, the versions of cuDNN and its
  /// frontend, and the device properties that a plan is bound to. Errors: kUnavailable
  /// (no cuDNN here, or one before attention::kFirstCudnn).
  [[nodiscard]] Result<KeyedPlan> key(const attention::Problem& problem,
                                      const device::DeviceProperties& device);

  /// The plan: from memory, disk, a seed or a remote, or built. A refusal by cuDNN is a
  /// result, which only this process remembers. Errors: as WorkerPool::build_plan;
  /// kCorrupt if cuDNN's plan is not the requested one; kUnavailable on a miss with
  /// KILN_NO_JIT. The Journal is told of it, and that it is for `device`, an
  /// ordinal.
  [[nodiscard]] Result<FetchedPlan> fetch(const KeyedPlan& plan,
                                          const std::stop_token& stop = {},
                                          std::optional<int> device = {});

  /// Takes a stored plan out of the cache, so that the next fetch() of this process
  /// builds it.
  /// Errors: kIo; kUnavailable (a read-only cache).
  [[nodiscard]] Result<void> remove(const KeyedPlan& plan);

  /// The program that builds plans. Errors: kUnavailable, with every place that was
  /// looked at; Kiln may have been built without it.
  [[nodiscard]] static Result<std::filesystem::path> find_worker(const Config& config);

  /// Its name in listings: "cudnn_attention_fwd".
  [[nodiscard]] static std::string_view name_of(const attention::Problem& problem);

  /// The fields whose digest is `plan.key`.
  [[nodiscard]] static Fields preimage(const KeyedPlan& plan);
  [[nodiscard]] static Compared compared(const KeyedPlan& plan);

 private:
  using Attempts = std::vector<compile::PlanAttempt>;

  [[nodiscard]] Result<FetchedPlan> find_or_build(const KeyedPlan& plan,
                                                  const std::stop_token& stop);
  [[nodiscard]] Result<NewArtifact> build(const KeyedPlan& plan,
                                          const std::stop_token& stop,
                                          const compile::ProgressCallback& on_phase,
                                          Attempts& attempts);
  [[nodiscard]] Result<AskedCudnn> ask(const std::filesystem::path& cudnn);
  [[nodiscard]] Result<compile::PlanJob> job(const KeyedPlan& plan);
  [[nodiscard]] std::optional<Attempts> find_refusal(const Digest& key);

  BuildService& service_;
  const std::stop_token closing_;
  compile::WorkerPool workers_;  // plan workers of this service only

  SingleFlight<std::filesystem::path, AskedCudnn> questions_;
  Mutex mutex_;
  std::map<std::filesystem::path, Result<AskedCudnn>> asked_ KILN_GUARDED_BY(mutex_);
  std::optional<attention::CudnnLibrary> library_ KILN_GUARDED_BY(mutex_);
  std::map<Digest, Attempts> refusals_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
