#include "tools/build_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "device/compatibility.h"
#include "util/log.h"
#include "util/try.h"
#include "util/units.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

constexpr int kNewNvrtc = 13;  // Kiln works with 12, too

bool is_success(BuildVerdict verdict) {
  return verdict == BuildVerdict::kHit || verdict == BuildVerdict::kCompiled ||
         verdict == BuildVerdict::kWaited;
}

std::uint64_t count(const BuildReport& report, BuildVerdict verdict) {
  return static_cast<std::uint64_t>(
      std::ranges::count(report.entries, verdict, &BuildEntry::verdict));
}

std::uint64_t count_not_stored(const BuildReport& report) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(report.entries, &BuildEntry::is_not_stored));
}

/// The NVRTCs that the items are for, by their names.
std::map<std::string, const device::Toolchain*> toolchains_of(
    const BuildReport& report) {
  std::map<std::string, const device::Toolchain*> toolchains;
  for (const BuildItem& item : report.items) {
    if (const auto* keyed = std::get_if<KeyedRequest>(&item.keyed))
      toolchains.emplace(keyed->toolchain->toolchain.name(),
                         &keyed->toolchain->toolchain);
  }
  return toolchains;
}

/// The oldest driver that can load everything that was built.
std::optional<device::CudaVersion> min_driver(const BuildReport& report) {
  std::optional<device::CudaVersion> version;
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const auto* keyed = std::get_if<KeyedRequest>(&report.items[i].keyed);
    const BuildVerdict verdict = report.entries[i].verdict;
    if (keyed == nullptr || is_failure(verdict) || verdict == BuildVerdict::kNotReached)
      continue;
    const auto needed = device::min_driver(keyed->target.kind,
                                           keyed->toolchain->toolchain.facts.version);
    version = std::max(version.value_or(needed), needed);
  }
  return version;
}

/// True if `target` is the PTX for devices that are newer than its NVRTC.
bool is_for_newer_devices(const device::Target& target,
                          const device::Toolchain& toolchain) {
  return target.architecture ==
         device::Architecture{toolchain.facts.architectures.back()};
}

/// What a device asks for where the template `found` was asked for by name; empty if
/// that is the same, and of a source: a program may name its target.
std::string asked_as(BuildService& service, const PreparedRequest& request,
                     const device::BuildFor& build_for, const KeyedRequest& found) {
  const auto* named = std::get_if<device::Target>(&build_for);
  if (named == nullptr || request.as_template() == nullptr)
    return "";
  if (named->kind == device::ImageKind::kCubin
          ? named->architecture.suffix == device::ArchSuffix::kNone
          : is_for_newer_devices(*named, found.toolchain->toolchain))
    return "";
  const auto keyed = service.key(request, named->architecture.capability);
  const auto* const asked = keyed ? std::get_if<KeyedRequest>(&*keyed) : nullptr;
  if (asked == nullptr || asked->target == *named)
    return "";
  return arch_name(asked->target);
}

std::string item_key(const BuildItem& item) {
  const Digest* const key = key_of(item);
  return key == nullptr ? "" : key->hex();
}

ordered_json item_json(const BuildItem& item, const BuildEntry& entry) {
  ordered_json json;
  json[item.named_as] = item.name;
  json["params"] = item.params;
  json["arch"] = item.arch;
  if (!item.device.empty())
    json["device"] = item.device;
  if (!item.kind.empty())
    json["kind"] = item.kind;
  if (!item.reason.empty())
    json["reason"] = item.reason;
  json["key"] = or_null(entry.key ? entry.key->hex() : item_key(item));
  // kRefused and kNotReached show as "failed"; `error` says that the build itself did
  // not fail.
  json["outcome"] = to_string(entry.verdict);
  json["tier"] = entry.tier ? ordered_json(to_string(*entry.tier)) : nullptr;
  json["stored"] = entry.stored;
  json["ms"] = entry.elapsed.count();
  if (entry.verdict == BuildVerdict::kNotReached)
    json["error"] = error_json({ErrorCode::kCancelled, "stopped before it was built"});
  else
    json["error"] = entry.error ? error_json(*entry.error) : ordered_json(nullptr);
  return json;
}

}  // namespace

const Digest* key_of(const BuildItem& item) {
  if (const auto* keyed = std::get_if<KeyedRequest>(&item.keyed))
    return &keyed->key;
  if (const auto* plan = std::get_if<KeyedPlan>(&item.keyed))
    return &plan->key;
  return nullptr;
}

const device::Toolchain* chosen_toolchain(const BuildItem& item) {
  const auto* const keyed = std::get_if<KeyedRequest>(&item.keyed);
  if (keyed == nullptr)
    return nullptr;
  const auto* const source =
      std::get_if<request::SourceRequest>(&keyed->request.resolved());
  return source != nullptr && !source->source.toolchain.empty()
             ? nullptr
             : &keyed->toolchain->toolchain;
}

std::string_view to_string(BuildVerdict verdict) {
  return word_of(verdict, {"hit", "compiled", "waited", "failed", "timeout", "failed",
                           "missing", "failed"});
}

bool BuildEntry::is_not_stored() const {
  return is_success(verdict) && !stored;
}

bool is_failure(BuildVerdict verdict) {
  return verdict == BuildVerdict::kFailed || verdict == BuildVerdict::kRefused ||
         verdict == BuildVerdict::kTimeout;
}

void add_items(BuildService& service, const Request& request,
               const std::vector<device::BuildFor>& architectures, BuildReport& report,
               const std::stop_token& stop) {
  for (const device::BuildFor& build_for : architectures) {
    BuildItem item{.named_as = request.is_template() ? "template" : "file",
                   .name = request.name(),
                   .label = request.name(),
                   .params = request.parameters(),
                   .arch = to_string(build_for),
                   .keyed = Error{}};
    auto prepared = service.prepare(request);
    if (!prepared) {
      item.keyed = prepared.error();
      report.items.push_back(std::move(item));
      continue;
    }
    item.label = prepared->label();
    if (const auto* wanted = prepared->as_template())
      item.params = wanted->params.values();
    auto keyed = service.key(*prepared, build_for, stop);
    if (!keyed) {
      item.keyed = keyed.error();
    } else if (std::holds_alternative<device::TargetSkipped>(*keyed)) {
      ++report.skipped;
      std::string& why = report.asked[to_string(build_for)].why_skipped;
      if (why.empty())
        why = std::get<device::TargetSkipped>(*keyed).reason;
      continue;
    } else {
      auto& found = std::get<KeyedRequest>(*keyed);
      item.arch = arch_name(found.target);
      item.asked_as = asked_as(service, *prepared, build_for, found);
      item.keyed = service.under_own_name(found);
    }
    report.asked[to_string(build_for)].has_items = true;
    report.items.push_back(std::move(item));
  }
}

Result<std::unique_ptr<BuildService>> open_to_build(Config config,
                                                    BuildServiceOptions options) {
  options.explains = config.events.has_value();
  config.events.reset();
  if (is_logged(LogLevel::kInfo) || options.explains)
    options.journal = "kernels";
  return from_input(BuildService::open(config, options));
}

Result<void> check_skipped(const Context& context, const BuildReport& report) {
  for (const auto& [arch, asked] : report.asked) {
    if (asked.has_items)
      continue;
    const auto text = fmt::format("no requested kernel is for {}: {}", arch,
                                  printable_lines(asked.why_skipped));
    if (report.items.empty())
      return refuse(text);
    print_error(fmt::format(
        "{} {}\n", context.err.styled("kiln: warning:", Style::kYellow), text));
  }
  return {};
}

void print_toolchains(const Context& context, const BuildReport& report) {
  if (!report.driver)
    return;
  std::vector<std::string> names;
  for (const auto& [name, toolchain] : toolchains_of(report))
    names.push_back(toolchain->installed()
                        ? fmt::format("{} ({})", name, toolchain->nvrtc.native())
                        : name);
  if (!names.empty())
    print_note(fmt::format("{} for a driver for CUDA {}: {}\n",
                           context.err.styled("kiln:", Style::kDim),
                           to_string(*report.driver),
                           printable_lines(fmt::format("{}", fmt::join(names, ", ")))));
}

void print_never_asked_for(const Context& context, const BuildReport& report) {
  struct Never {
    const BuildItem* first;
    std::size_t count;
  };
  std::map<std::string, Never> found;
  for (const BuildItem& item : report.items) {
    if (item.asked_as.empty())
      continue;
    ++found.emplace(item.arch, Never{&item, 0}).first->second.count;
  }
  for (const auto& [arch, never] : found) {
    const auto others =
        never.count > 1 ? fmt::format(" and {} more", never.count - 1) : "";
    print_error(fmt::format(
        "{} no device asks for {}{} for {}: a device of that kind asks for {}; write "
        "--arch {}\n",
        context.err.styled("kiln: warning:", Style::kYellow),
        printable_lines(never.first->label), others, arch, never.first->asked_as,
        never.first->asked_as));
  }
}

void BuildReport::add(BuildReport&& later) {
  std::set<std::string> seen;
  for (const BuildItem& item : items) seen.insert(item_key(item));
  for (std::size_t i = 0; i < later.items.size(); ++i) {
    const std::string key = item_key(later.items[i]);
    if (!key.empty() && !seen.insert(key).second)
      continue;
    items.push_back(std::move(later.items[i]));
    entries.push_back(std::move(later.entries[i]));
  }
  gave_up = gave_up || later.gave_up;
  cannot_store = cannot_store || later.cannot_store;
  skipped += later.skipped;
  elapsed += later.elapsed;
}

ordered_json report_json(const BuildReport& report) {
  ordered_json entries = ordered_json::array();
  for (std::size_t i = 0; i < report.items.size(); ++i)
    entries.push_back(item_json(report.items[i], report.entries[i]));
  const auto driver = min_driver(report);
  ordered_json json{
      {"requested", report.items.size()},
      {"hits", count(report, BuildVerdict::kHit)},
      {"compiled", count(report, BuildVerdict::kCompiled)},
      {"waited", count(report, BuildVerdict::kWaited)},
      {"failed", count(report, BuildVerdict::kFailed) +
                     count(report, BuildVerdict::kRefused) +
                     count(report, BuildVerdict::kTimeout) +
                     count(report, BuildVerdict::kNotReached)},
      {"skipped", report.skipped},
      {"not_stored", count_not_stored(report)},
      {"seconds", static_cast<double>(report.elapsed.count()) / 1e3},
      {"min_driver", driver ? ordered_json(to_string(*driver)) : ordered_json(nullptr)},
      {"entries", entries}};
  if (report.driver) {
    json["driver"] = to_string(*report.driver);
    json["toolchains"] = ordered_json::array();
    for (const auto& [name, toolchain] : toolchains_of(report))
      json["toolchains"].push_back(name);
  }
  if (report.refused)
    json["refused"] = *report.refused;
  if (report.bad_lines)
    json["bad_lines"] = *report.bad_lines;
  if (report.dry_run)
    json["missing"] = count(report, BuildVerdict::kMissing);
  return json;
}

void print_not_stored(const Context& context, const BuildReport& report) {
  for (const BuildEntry& entry : report.entries) {
    if (is_success(entry.verdict) && entry.error) {
      print_error(fmt::format("{} first reason for not storing: {}\n",
                              context.err.styled("kiln:", Style::kYellow),
                              printable_lines(entry.error->message)));
      return;
    }
  }
}

/// By preset and architecture, what is there of all that is wanted.
void print_forbidden(const BuildReport& report) {
  struct Counts {
    std::size_t there = 0;
    std::size_t all = 0;
  };
  std::map<std::string, std::map<std::string, Counts>> table;
  for (std::size_t i = 0; i < report.items.size(); ++i) {
    const BuildItem& item = report.items[i];
    auto names = item.presets;
    if (names.empty())
      names.emplace_back();
    for (const std::string& preset : names) {
      Counts& counts = table[preset][item.arch];
      ++counts.all;
      counts.there += is_success(report.entries[i].verdict) ? 1 : 0;
    }
  }
  std::string text =
      fmt::format("kiln: {} forbids building the missing kernels; the cache has",
                  report.forbidden_by);
  for (const auto& [preset, architectures] : table) {
    text += "\n  " + (preset.empty() ? "" : preset + ": ");
    std::string_view between;
    for (const auto& [arch, counts] : architectures) {
      text += fmt::format("{}{} of {} for {}", between, counts.there, counts.all, arch);
      between = ", ";
    }
  }
  print_error(
      text + "\nwarm the cache first; --verbose or --json lists the missing kernels\n");
}

void print_report(const Context& context, const BuildReport& report) {
  if (!report.forbidden_by.empty())
    print_forbidden(report);

  const auto part = [&](BuildVerdict verdict, std::string_view word) {
    const std::uint64_t n = count(report, verdict);
    return n == 0 ? std::string() : fmt::format(", {} {}", n, word);
  };
  std::string line =
      fmt::format("{} requested: {}, {} compiled", report.items.size(),
                  counted(count(report, BuildVerdict::kHit), "hit", "hits"),
                  count(report, BuildVerdict::kCompiled));
  line += part(BuildVerdict::kWaited, "built or fetched by other processes");
  line += part(BuildVerdict::kMissing, "missing");
  if (report.expected)
    line += fmt::format(" (about {} to build)", format_duration(*report.expected));
  line += part(BuildVerdict::kFailed, "failed");
  if (const auto n = report.refused.value_or(0) + count(report, BuildVerdict::kRefused))
    line += fmt::format(", {} refused by cuDNN", n);
  line += part(BuildVerdict::kTimeout, "timed out");
  line += part(BuildVerdict::kNotReached, "not reached");
  if (report.skipped > 0)
    line += fmt::format(", {} skipped (not for that architecture)", report.skipped);
  if (report.bad_lines.value_or(0) > 0)
    line += fmt::format(", {} bad lines left out", *report.bad_lines);
  if (const std::uint64_t n = count_not_stored(report); n > 0)
    line += fmt::format(", {} not stored", n);
  line += fmt::format(", in {}\n", format_duration(report.elapsed));
  if (const auto driver = min_driver(report))
    line += fmt::format(
        "a job that loads these kernels needs a driver for CUDA {} or later{}\n",
        to_string(*driver),
        driver->major >= kNewNvrtc && !report.driver
            ? "; for an older driver name its version: --driver 12.4"
            : "");
  print(context.out.fitted(line));
  print_not_stored(context, report);
  if (report.gave_up)
    print(context.out.fitted(
        "the rest is not built, since nothing more can be stored: make room, and the "
        "same command again goes on from here\n"));
  else if (count(report, BuildVerdict::kNotReached) > 0)
    print(context.out.fitted(
        "finished builds are kept: the same command again goes on from here\n"));
}

int exit_code_of(const BuildReport& report) {
  std::size_t failed = 0;
  std::size_t unavailable = 0;
  for (const BuildEntry& entry : report.entries) {
    if (!is_failure(entry.verdict))
      continue;
    ++failed;
    unavailable += entry.error && entry.error->code == ErrorCode::kUnavailable ? 1 : 0;
  }
  const bool has_bad_lines = report.bad_lines.value_or(0) > 0;
  // The environment caused every failure: KILN_NO_JIT, no worker, no NVRTC, no room.
  if (!has_bad_lines && failed == unavailable &&
      (failed > 0 || report.gave_up || report.cannot_store))
    return kUnavailable;
  return has_bad_lines || failed > 0 || count_not_stored(report) > 0 ? kSomeFailed
                                                                     : kAllDone;
}

}  // namespace kiln::tools
