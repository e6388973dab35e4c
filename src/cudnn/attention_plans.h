// cuDNN's attention on the devices of one service: plans fetched, loaded, and run where
// the stream is. attention_plans.cc reads like the picture in src/DESIGN.md.

#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attention/problem_hash.h"
#include "cudnn/handles.h"
#include "cudnn/loaded_plan.h"
#include "cudnn/plan_service.h"
#include "device/device_properties.h"
#include "device/devices.h"
#include "kiln/device.h"
#include "kiln/result.h"
#include "util/mutex.h"
#include "util/single_flight.h"

struct CUstream_st;

namespace kiln {

/// Thread safety: every method may run concurrently; no lock is held while a plan is
/// built or loaded, and a run of a loaded plan waits for nobody.
/// Fork safety: as BuildService.
class AttentionPlans {
 public:
  using Pointer = std::shared_ptr<const attention::LoadedPlan>;

  /// All must outlive it. `cudnn` loads plans, where it is not the one that builds
  /// them: for tests.
  AttentionPlans(PlanService& plans, Devices& devices,
                 std::optional<std::filesystem::path> cudnn = std::nullopt);

  /// The plan for `device`, loaded, and ready for the calling thread: from memory, from
  /// disk, or built. To be called before `problem` is run while a stream is captured.
  /// Errors: kUnavailable (the rules or cuDNN refuse the problem: which, why, what
  /// helps; a plan that is not for this driver or cuDNN); those of PlanService::fetch()
  /// and LoadedPlan::load().
  [[nodiscard]] Result<Pointer> prepare(const attention::Problem& problem,
                                        const Device& device,
                                        const std::stop_token& stop = {});

  /// Puts one run on `stream`, on its device; the first one prepares. Errors: as
  /// prepare() and LoadedPlan::run(); kInvalidArgument, while the stream is captured,
  /// for a problem that was not prepared; kUnavailable there, for one that cuDNN must
  /// not run in a graph.
  [[nodiscard]] Result<void> run(const attention::Problem& problem, CUstream_st* stream,
                                 std::span<const attention::TensorPointer> tensors,
                                 attention::WorkspaceMemory workspace);

  /// Lets go of every plan: of lengths that will not come again, say. Runs under way
  /// keep theirs.
  void clear();

 private:
  struct Place {
    attention::Problem problem;
    int ordinal = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct PlaceHash {
    std::size_t operator()(const Place& place) const noexcept {
      return attention::ProblemHash()(place.problem) +
             static_cast<std::size_t>(place.ordinal);
    }
  };
  /// What is asked of a device once.
  struct PerDevice {
    device::DeviceProperties properties;
    std::shared_ptr<attention::CudnnHandles> handles;
  };

  /// A plan as it is asked for. Several problems may share one: what no plan depends on
  /// the rules may depend on.
  struct Loaded {
    Pointer plan;
    /// Why it must not run in a CUDA graph; nullopt: it may.
    std::optional<Error> not_captured;
  };

  [[nodiscard]] std::optional<Loaded> find(const Place& place);
  [[nodiscard]] Result<Loaded> fetch_and_load(const Place& place, const Device& device,
                                              const std::stop_token& stop);
  [[nodiscard]] Result<Pointer> load(
      const KeyedPlan& keyed, const Device& device,
      const std::shared_ptr<attention::CudnnHandles>& handles,
      const std::stop_token& stop);
  [[nodiscard]] Result<PerDevice> per_device(const Device& device);

  // Constant after construction.
  PlanService& plans_;
  Devices& devices_;
  const std::optional<std::filesystem::path> cudnn_;

  SingleFlight<Digest, Loaded> loads_;
  Mutex mutex_;
  std::unordered_map<int, PerDevice> per_device_ KILN_GUARDED_BY(mutex_);
  std::unordered_map<Place, Loaded, PlaceHash> loaded_ KILN_GUARDED_BY(mutex_);
  // By key and ordinal.
  std::map<std::pair<Digest, int>, Pointer> by_key_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
