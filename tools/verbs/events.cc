// kiln events: what the files of KILN_EVENTS sum up to, of one job or of a fleet.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/verbs.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using std::chrono::milliseconds;

struct EventsOptions {
  std::vector<std::string> files;
  std::string limit;
};

/// Of a kernel, of a host, or of all.
struct Sum {
  std::map<std::string, std::uint64_t> outcomes;
  milliseconds built{0};
  milliseconds waited{0};
  std::string first;  // times, RFC 3339 in UTC
  std::string last;
  std::set<std::string> hosts;
  std::set<std::string> processes;  // "host pid"
  std::string reason;               // of the last build, failure or pass
  std::string error;

  [[nodiscard]] std::uint64_t count(const std::string& outcome) const {
    const auto found = outcomes.find(outcome);
    return found == outcomes.end() ? 0 : found->second;
  }
  [[nodiscard]] std::uint64_t failed() const {
    return count("failed") + count("timeout");
  }
  [[nodiscard]] std::uint64_t all() const {
    std::uint64_t sum = 0;
    for (const auto& [outcome, times] : outcomes) sum += times;
    return sum;
  }
  [[nodiscard]] bool is_only_found() const { return count("hit") == all(); }
};

struct Event {
  std::string name;
  std::string arch;
  std::string outcome;
  std::string tier;
  std::string time;
  std::string host;
  std::string process;
  std::string reason;
  std::string error;
  milliseconds took{0};
  milliseconds built{0};
};

std::string text_in(const ordered_json& event, const char* member) {
  const auto found = event.find(member);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

milliseconds time_in(const ordered_json& event, const char* member,
                     milliseconds otherwise) {
  constexpr std::uint64_t kMostMs = 1'000'000'000'000;  // so that no sum overflows
  const auto found = event.find(member);
  return found != event.end() && found->is_number_unsigned()
             ? milliseconds(
                   std::min<std::uint64_t>(found->get<std::uint64_t>(), kMostMs))
             : otherwise;
}

/// nullopt: a line that is no event, such as the part that a full disk left.
std::optional<Event> parse(std::string_view line) {
  const auto json = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || text_in(json, "event") != "done")
    return std::nullopt;
  Event event{.name = text_in(json, "name"),
              .arch = text_in(json, "arch"),
              .outcome = text_in(json, "outcome"),
              .tier = text_in(json, "tier"),
              .time = text_in(json, "time"),
              .host = text_in(json, "host"),
              .process = {},
              .reason = text_in(json, "nearest") + text_in(json, "reason"),
              .error = {}};
  const auto pid = json.find("pid");
  const bool has_pid = pid != json.end() && pid->is_number();
  event.process = event.host + " " + (has_pid ? pid->dump() : std::string("?"));
  if (const auto error = json.find("error"); error != json.end() && error->is_object())
    event.error = text_in(*error, "message");
  event.took = time_in(json, "ms", milliseconds(0));
  event.built = time_in(json, "build_ms", event.took);
  if (event.name.empty() || event.outcome.empty())
    return std::nullopt;
  return event;
}

class Sums {
 public:
  void add_line(std::string_view line) {
    if (line.ends_with('\r'))  // of a file that was copied as text
      line.remove_suffix(1);
    if (line.empty())
      return;
    const auto event = parse(line);
    if (!event) {
      ++unreadable_;
      return;
    }
    add(total_, *event);
    add(kernels_[{event->name, event->arch}], *event);
    if (!event->host.empty())
      add(hosts_[event->host], *event);
    if (event->outcome == "hit" && !event->tier.empty())
      ++tiers_[event->tier];
  }

  /// So that these are no files of events.
  [[nodiscard]] bool has_only_unreadable() const {
    return total_.all() == 0 && unreadable_ > 0;
  }
  void print_json() const;
  void print_text(std::size_t most, const Terminal& out) const;

 private:
  using Kernel = std::pair<std::string, std::string>;  // name and architecture

  static void add(Sum& sum, const Event& event) {
    ++sum.outcomes[event.outcome];
    if (event.outcome == "compiled")
      sum.built += event.built;
    if (event.outcome == "waited")
      sum.waited += event.took;
    if (!event.time.empty() && (sum.first.empty() || event.time < sum.first))
      sum.first = event.time;
    sum.last = std::max(sum.last, event.time);
    if (!event.host.empty())
      sum.processes.insert(event.process);
    if (!event.host.empty() && event.outcome != "hit")
      sum.hosts.insert(event.host);
    if (!event.reason.empty())
      sum.reason = event.reason;
    if (!event.error.empty())
      sum.error = event.error;
  }

  /// Those that were not only found, the longest builds first.
  [[nodiscard]] std::vector<std::pair<Kernel, const Sum*>> costly() const {
    std::vector<std::pair<Kernel, const Sum*>> list;
    for (const auto& [kernel, sum] : kernels_) {
      if (!sum.is_only_found())
        list.emplace_back(kernel, &sum);
    }
    std::ranges::stable_sort(list, [](const auto& a, const auto& b) {
      return a.second->built + a.second->waited > b.second->built + b.second->waited;
    });
    return list;
  }

  Sum total_;
  std::map<Kernel, Sum> kernels_;
  std::map<std::string, Sum> hosts_;
  std::map<std::string, std::uint64_t> tiers_;  // of hits
  std::uint64_t unreadable_ = 0;
};

void add_counts(ordered_json& json, const Sum& sum) {
  json["found"] = sum.count("hit");
  json["compiled"] = sum.count("compiled");
  json["waited"] = sum.count("waited");
  json["failed"] = sum.failed();
  json["passed"] = sum.count("passed");
  json["build_ms"] = sum.built.count();
  json["wait_ms"] = sum.waited.count();
  json["first"] = or_null(sum.first);
  json["last"] = or_null(sum.last);
}

void Sums::print_json() const {
  ordered_json json = {{"events", total_.all()},
                       {"unreadable", unreadable_},
                       {"processes", total_.processes.size()}};
  add_counts(json, total_);
  json["tiers"] = tiers_;
  json["kernels"] = ordered_json::array();
  for (const auto& [kernel, sum] : costly()) {
    ordered_json row = {{"name", kernel.first}, {"arch", kernel.second}};
    add_counts(row, *sum);
    row["hosts"] = sum->hosts;
    row["reason"] = or_null(sum->reason);
    row["error"] = or_null(sum->error);
    json["kernels"].push_back(std::move(row));
  }
  json["hosts"] = ordered_json::array();
  for (const auto& [host, sum] : hosts_) {
    ordered_json row = {{"host", host}, {"processes", sum.processes.size()}};
    add_counts(row, sum);
    json["hosts"].push_back(std::move(row));
  }
  tools::print_json(json);
}

std::string counts_text(const Sum& sum) {
  std::vector<std::string> parts;
  if (const auto built = sum.count("compiled"); built > 0)
    parts.push_back(fmt::format("{} built in {}", built, format_duration(sum.built)));
  if (const auto waited = sum.count("waited"); waited > 0)
    parts.push_back(
        fmt::format("{} waited for, {}", waited, format_duration(sum.waited)));
  if (sum.failed() > 0)
    parts.push_back(fmt::format("{} failed", sum.failed()));
  if (const auto passed = sum.count("passed"); passed > 0)
    parts.push_back(fmt::format("{} left to NVRTC", passed));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// "node1, node2 and 62 more".
std::string hosts_text(const std::set<std::string>& hosts) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> shown;
  for (const std::string& host : hosts) {
    if (shown.size() < kShown)
      shown.push_back(host);
  }
  const std::string text = fmt::format("{}", fmt::join(shown, ", "));
  return hosts.size() <= kShown
             ? text
             : fmt::format("{} and {} more", text, hosts.size() - kShown);
}

void Sums::print_text(std::size_t most, const Terminal& out) const {
  if (total_.all() == 0) {
    print("no events\n");
    return;
  }
  const std::string counts = counts_text(total_);
  std::vector<std::string> found;
  for (const auto& [tier, hits] : tiers_)
    found.push_back(fmt::format("{} from {}", hits, tier));
  print(out.fitted(fmt::format(
      "{} of {} on {}, {} to {}\n{} found{}{}{}{}{}\n",
      counted(total_.all(), "event", "events"),
      counted(total_.processes.size(), "process", "processes"),
      counted(hosts_.size(), "host", "hosts"), total_.first, total_.last,
      total_.count("hit"), found.empty() ? "" : " (", fmt::join(found, ", "),
      found.empty() ? "" : ")", counts.empty() ? "" : ", ", counts)));
  if (unreadable_ > 0)
    print(fmt::format("{} cannot be read\n", counted(unreadable_, "line", "lines")));
  const auto list = costly();
  if (list.empty())
    return;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [kernel, sum] : list) {
    if (rows.size() == most)
      break;
    rows.push_back({kernel.first, kernel.second, counts_text(*sum),
                    hosts_text(sum->hosts), sum->first,
                    sum->error.empty() ? sum->reason : sum->error});
  }
  print("\n" + format_table({{.title = "KERNEL", .cut = Cut::kMiddle},
                             {.title = "ARCH"},
                             {.title = "WHAT IT COST", .may_wrap = true},
                             {.title = "HOSTS", .leave_out = 2, .may_wrap = true},
                             {.title = "SINCE", .leave_out = 1},
                             {.title = "WHY", .may_wrap = true}},
                            rows, out));
  if (list.size() > rows.size())
    print(fmt::format("and {} more: --limit {} lists them\n", list.size() - rows.size(),
                      list.size()));
}

/// The files of a folder that processes write there; `path` itself if it is no folder.
Result<std::vector<fs::path>> files_at(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return std::vector<fs::path>{path};
  std::vector<fs::path> files;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".jsonl")
      files.push_back(at->path());
  }
  if (error)
    return refuse("{} cannot be listed: {}", path, error.message());
  if (files.empty())
    return refuse("{} has no file of events, NAME.jsonl", path);
  std::ranges::sort(files);
  return files;
}

Result<void> read(const std::string& name, Sums& sums) {
  if (name == "-") {
    for (std::string line; std::getline(std::cin, line);) sums.add_line(line);
    return {};
  }
  const auto files = KILN_TRY(files_at(name));
  for (const fs::path& file : files) {
    const auto done = read_lines(file, std::numeric_limits<std::int64_t>::max(),
                                 [&](std::string_view line) -> Result<void> {
                                   sums.add_line(line);
                                   return {};
                                 });
    if (!done && files.size() > 1)  // the other nodes' say enough
      print_error(fmt::format("not read: {}\n", done.error().message));
    else if (!done)  // a file that is not there is wrong input
      return refuse(done.error().message);
  }
  return {};
}

Result<int> run(Context& context, const EventsOptions& options) {
  constexpr std::size_t kFew = 20;
  std::size_t most = kFew;
  if (!options.limit.empty())
    most = KILN_TRY(
        parse_number("--limit", options.limit, {0, std::numeric_limits<int>::max()}));
  Sums sums;
  for (const std::string& file : options.files) KILN_TRY(read(file, sums));
  if (sums.has_only_unreadable())
    return refuse(
        "{}: no line is an event, as KILN_EVENTS and `warm --events` write it",
        fmt::join(options.files, ", "));
  if (context.json)
    sums.print_json();
  else
    sums.print_text(most, context.out);
  return 0;
}

}  // namespace

Run add_events(OptionSet& cli) {
  auto options = std::make_shared<EventsOptions>();
  cli.argument(
      "FILE", options->files,
      "Files that KILN_EVENTS or `warm --events` named, folders of such files, "
      "or - for standard input",
      Presence::kRequired);
  cli.group(kOutputGroup);
  cli.option("--limit", options->limit, "N",
             "At most N kernels, the most expensive first (default: 20)");
  cli.footer(
      "Example:\n"
      "  KILN_EVENTS=/shared/events srun python train.py\n"
      "  kiln events /shared/events          the kernels that the job built, where and "
      "why\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
