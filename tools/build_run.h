// Builds a list of kernels and plans, several at a time, and accounts for each: what
// `warm` and `compile` share.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "build/build_service.h"
#include "cudnn/plan_service.h"
#include "tools/context.h"
#include "tools/output/event_log.h"

namespace kiln::tools {

/// One request for one architecture; or why it got no further than that.
struct BuildItem {
  std::string_view named_as;  // "template" or "file", as the JSON has it
  std::string name;
  std::string label;        // "scaled_softmax_fwd:dtype=bf16", or a file's name
  Parameters params;        // canonical, of a template
  std::string arch;         // as printed: what is really built for, "9.0a"
  std::string device = {};  // of a plan, which is for one
  // Where both are built: "plan" or "kernel", and of a kernel why it is not a plan.
  std::string_view kind = {};
  std::string reason = {};
  std::variant<KeyedRequest, KeyedPlan, Error> keyed;
};

enum class Verdict : std::uint8_t {
  kHit,
  kCompiled,
  kWaited,
  kFailed,
  kTimeout,
  kRefused,     // by cuDNN itself, of a plan
  kMissing,     // a dry run found that it would be built
  kNotReached,  // stopped before its turn
};

/// "hit", "compiled", "waited", "failed", "timeout", "missing" (of a dry run).
/// What was refused or not reached counts as failed.
[[nodiscard]] std::string_view to_string(Verdict verdict);

/// Not of what was not reached.
[[nodiscard]] bool is_failure(Verdict verdict);

struct BuildEntry {
  Verdict verdict = Verdict::kNotReached;
  bool stored = false;
  std::chrono::milliseconds elapsed{0};
  std::optional<Error> error;  // of a failure, or why it was not stored
  std::shared_ptr<const cache::StoredObject> object;  // of a success
};

struct BuildRunOptions {
  unsigned jobs = 1;
  bool dry_run = false;
  bool fail_fast = false;
  bool keep_objects = false;  // else entries' objects are let go at once
  EventLog* events = nullptr;
  PlanService* plans = nullptr;  // where an item is a plan
  /// What the caller does about a plan that cuDNN itself refuses, for people; empty:
  /// nothing, it is a failure.
  std::string_view on_refusal = {};
};

struct BuildReport {
  std::vector<BuildItem> items;
  std::vector<BuildEntry> entries;  // one an item, in the same order
  bool dry_run = false;             // nothing was built, what would be is missing
  std::uint64_t skipped = 0;        // left out by a template's target limits
  std::chrono::milliseconds elapsed{0};

  /// What was built after this; a key already here counts once.
  void add(BuildReport&& later);
};

/// Adds `request` for each of `architectures` to `items`; a key already there counts
/// once. Requests excluded by target limits are counted in `skipped`. An error of one
/// (unknown parameter, unreadable header) becomes that item's.
void add_items(BuildService& service, const Request& request,
               const std::vector<device::BuildFor>& architectures, BuildReport& report);

/// Fetches every item on `options.jobs` threads, with progress on stderr, until all are
/// done, `context.stop` is asked for, or one failed under fail_fast.
void run_builds(Context& context, BuildService& service, const BuildRunOptions& options,
                BuildReport& report);

/// The contract's document.
[[nodiscard]] nlohmann::ordered_json report_json(const BuildReport& report);

/// The contract's counts as lines for people, and every failure with its message.
void print_report(const Context& context, const BuildReport& report);

/// 0; 1 if something failed or could not be stored; 3 if all that failed did so because
/// the environment lacks something.
[[nodiscard]] int exit_code_of(const BuildReport& report);

}  // namespace kiln::tools
