// Builds a list of kernels and plans, several at a time, and reports each outcome.
// Shared by `warm` and `compile`.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "build/build_service.h"
#include "cudnn/plan_service.h"
#include "tools/context.h"

namespace kiln::tools {

/// One request for one architecture, or the error that kept it from having a key.
struct BuildItem {
  std::string_view named_as;  // the JSON field: "template" or "file"
  std::string name;
  std::string label;  // "scaled_softmax_fwd:dtype=bf16", or a file's name
  Parameters params;  // canonical, of a template
  std::string arch;   // as printed: the architecture really built for, "9.0a"
  // What a device of this compute capability asks for, if that is another architecture.
  std::string asked_as = {};
  std::string device = {};  // of a plan, which is for one
  // If a run builds both: "plan" or "kernel", and for a kernel why no plan was built.
  std::string_view kind = {};
  std::string reason = {};
  std::vector<std::string> presets = {};  // that launch it
  std::variant<KeyedRequest, KeyedPlan, Error> keyed;
};

enum class BuildVerdict : std::uint8_t {
  kHit,
  kCompiled,
  kWaited,
  kFailed,
  kTimeout,
  kRefused,     // a plan that cuDNN itself refused
  kMissing,     // a dry run found that it would be built
  kNotReached,  // stopped before its turn
};

/// Null for an item without a key.
[[nodiscard]] const Digest* key_of(const BuildItem& item);

/// The NVRTC that was chosen for it; null for a plan, for an item without a key, and
/// where the request itself names one, which says nothing of others.
[[nodiscard]] const device::Toolchain* chosen_toolchain(const BuildItem& item);

/// "hit", "compiled", "waited", "failed", "timeout", "missing" (in a dry run). kRefused
/// and kNotReached give "failed".
[[nodiscard]] std::string_view to_string(BuildVerdict verdict);

/// kNotReached is no failure.
[[nodiscard]] bool is_failure(BuildVerdict verdict);

struct BuildEntry {
  [[nodiscard]] bool is_not_stored() const;

  BuildVerdict verdict = BuildVerdict::kNotReached;
  bool stored = false;
  std::optional<cache::Tier> tier{};  // of a success, and of a hit in a dry run
  std::string server{};               // of kRemote: its label
  // Of a success, and of a hit in a dry run: another toolchain's may stand for the
  // item's.
  std::optional<Digest> key{};
  std::chrono::milliseconds elapsed{0};
  std::chrono::milliseconds built_in{0};  // of kCompiled: the build alone
  std::string why_built{};                // of kCompiled: why, where events are written
  std::string name{};                     // of the object, where events are written
  std::optional<Error> error;             // of a failure, or why it was not stored
  std::shared_ptr<const cache::StoredObject> object;  // of a success
};

struct BuildRunOptions {
  unsigned jobs = 1;
  bool dry_run = false;
  bool fail_fast = false;
  bool keep_objects = false;  // false: each object is released at once
  /// The run is there to store what it builds: if nothing can be stored, nothing is
  /// built, and it ends where a few results in a row could not be written (a full
  /// disk). It also says beforehand how much it will build.
  bool must_store = false;
  /// Hits of these came just before from the remote cache with this label.
  const std::map<Digest, std::string>* pulled = nullptr;
  /// Called on any thread with each item that the cache had, or that was built.
  std::function<void(const BuildItem&, const BuildEntry&)> on_success{};
  PlanService* plans = nullptr;  // needed if an item is a plan
  /// Text for people: what the caller does if cuDNN itself refuses a plan. Empty:
  /// nothing, so it is a failure.
  std::string_view on_refusal = {};
  /// False: kernels that KILN_NO_JIT forbids to build are counted, see print_report(),
  /// and not listed.
  bool lists_forbidden = true;
};

/// What was asked for by the name of one architecture.
struct AskedArchitecture {
  bool has_items = false;
  std::string why_skipped;  // of the first that target limits exclude
};

struct BuildReport {
  std::vector<BuildItem> items;
  std::vector<BuildEntry> entries;  // one per item, in the same order
  bool dry_run = false;             // nothing was built; kMissing: it would be built
  bool gave_up = false;             // ended because nothing can be stored any more
  bool cannot_store = false;        // of a dry run: a run would build nothing
  std::optional<std::chrono::milliseconds> expected{};  // what a dry run would take
  std::string
      forbidden_by{};         // the setting, where builds were forbidden and not listed
  std::uint64_t skipped = 0;  // left out by a template's target limits
  std::map<std::string, AskedArchitecture> asked;  // of add_items()
  std::optional<std::uint64_t> refused{};          // by cuDNN: plans of presets
  std::optional<device::CudaVersion> driver{};     // of --driver
  std::optional<std::uint64_t> bad_lines{};  // under --skip-bad: left out of manifests
  std::chrono::milliseconds elapsed{0};

  /// Appends a later report, without the items whose key is already here.
  void add(BuildReport&& later);
};

/// Adds an item to `report` for each of `architectures`. Requests excluded by target
/// limits are counted in `skipped`. An error (unknown parameter, unreadable header)
/// becomes the item's own; so does kCancelled, which `stop` gives while headers are
/// searched.
void add_items(BuildService& service, const Request& request,
               const std::vector<device::BuildFor>& architectures, BuildReport& report,
               const std::stop_token& stop = {});

/// Warns of an architecture that nothing of it all is for. Errors: kInvalidArgument if
/// that leaves nothing.
[[nodiscard]] Result<void> check_skipped(const Context& context,
                                         const BuildReport& report);

/// Under --driver: a line on stderr that names it and the NVRTCs that were chosen.
void print_toolchains(const Context& context, const BuildReport& report);

/// A warning on stderr for each architecture with a suffix, such as 9.0a, for which no
/// device will ask for what is built: a hit needs the very architecture.
void print_never_asked_for(const Context& context, const BuildReport& report);

/// BuildService::open() for run_builds(), which writes the events itself: the service
/// only logs its builds, for --verbose.
[[nodiscard]] Result<std::unique_ptr<BuildService>> open_to_build(
    Config config, BuildServiceOptions options);

/// Drops items with a key that came before, then finds what the cache has, and builds
/// the rest, `options.jobs` builds at a time, with progress on stderr. Ends when all
/// are done, when a stop is requested through `context.stop`, or after one failure
/// under fail_fast. Errors: kUnavailable under must_store, before the first build.
[[nodiscard]] Result<void> run_builds(Context& context, BuildService& service,
                                      const BuildRunOptions& options,
                                      BuildReport& report);

/// The contract's document.
[[nodiscard]] nlohmann::ordered_json report_json(const BuildReport& report);

/// A line on stderr with the first reason why a result was not stored, if there is one.
void print_not_stored(const Context& context, const BuildReport& report);

/// The contract's counts as lines for people, and every failure with its message.
void print_report(const Context& context, const BuildReport& report);

/// 0; 1 if something failed or could not be stored; 3 if all that failed did so because
/// the environment lacks something, or if the run gave up.
[[nodiscard]] int exit_code_of(const BuildReport& report);

}  // namespace kiln::tools
