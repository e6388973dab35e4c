// kiln ps: which kernels are built on this machine now, and which processes wait for
// them.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "build/in_progress.h"
#include "tools/open_cache.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

/// A build and who waits for it. Where no build is known, one of those who wait stands
/// for it.
struct Build {
  InProgress shown;
  std::vector<pid_t> waiting;
};

std::vector<Build> builds_of(std::vector<InProgress> all) {
  std::vector<Build> builds;
  std::map<Digest, std::size_t> first;
  for (InProgress& each : all) {
    const auto known = first.find(each.key);
    if (each.phase == kWaitingPhase && known != first.end()) {
      builds[known->second].waiting.push_back(each.pid);
      continue;
    }
    first.emplace(each.key, builds.size());
    builds.push_back({std::move(each), {}});
  }
  return builds;
}

ordered_json json_of(const Build& build) {
  const auto& [key, label, target, phase, pid, age, is_stopped, is_elsewhere] =
      build.shown;
  constexpr double kMsPerSecond = 1000;
  return {{"key", key.hex()},
          {"label", label},
          {"target", target},
          {"pid", pid},
          {"phase", phase},
          {"seconds", static_cast<double>(age.count()) / kMsPerSecond},
          {"stopped", is_stopped},
          {"elsewhere", is_elsewhere},
          {"waiting", build.waiting}};
}

void print_builds(const std::vector<Build>& builds, const Terminal& out) {
  std::vector<std::vector<std::string>> rows;
  for (const Build& build : builds) {
    const InProgress& shown = build.shown;
    rows.push_back({shown.key.short_hex(), shown.label, shown.target,
                    shown.is_elsewhere ? fmt::format("{} of a container", shown.pid)
                                       : std::to_string(shown.pid),
                    shown.is_stopped ? shown.phase + ", but stopped" : shown.phase,
                    format_duration(shown.age),
                    fmt::format("{}", fmt::join(build.waiting, ", "))});
  }
  print(format_table({{.title = "KEY", .leave_out = 2},
                      {.title = "KERNEL", .cut = Cut::kMiddle},
                      {.title = "TARGET", .leave_out = 1},
                      {.title = "PID"},
                      {.title = "PHASE"},
                      {.title = "FOR", .align = Align::kRight},
                      {.title = "WAITING", .may_wrap = true}},
                     rows, out));
}

Result<int> run(Context& context) {
  const auto cache = KILN_TRY(open_cache(context.config));
  const auto builds = builds_of(list_in_progress(in_progress_folder(*cache)));
  if (context.json) {
    ordered_json list = ordered_json::array();
    for (const Build& build : builds) list.push_back(json_of(build));
    print_json({{"builds", list}});
  } else if (builds.empty()) {
    print_note(fmt::format("nothing is built here now for {}\n",
                           cache->layout().root().native()));
  } else {
    print_builds(builds, context.out);
  }
  return 0;
}

}  // namespace

Run add_ps(OptionSet& cli) {
  cli.footer(
      "Lists builds of this machine for this cache, in all processes that use it.\n");
  return [](Context& context) { return run(context); };
}

}  // namespace kiln::tools
