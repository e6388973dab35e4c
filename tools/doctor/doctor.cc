#include "tools/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kiln/version.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMaxReportBytes = 4U << 20U;

/// The values of `field` in a list of objects, each once, sorted.
std::set<std::string> values(const ordered_json& report, const char* list,
                             const char* field) {
  std::set<std::string> found;
  for (const ordered_json& item : report.value(list, ordered_json::array())) {
    if (item.is_object() && item.contains(field) && item[field].is_string())
      found.insert(item[field].get<std::string>());
  }
  return found;
}

Check compare_sets(const std::string& name, const std::set<std::string>& here,
                   const std::set<std::string>& there, const std::string& remedy) {
  const auto text = [](const std::set<std::string>& each) {
    return each.empty() ? "none" : fmt::format("{}", fmt::join(each, ", "));
  };
  if (here == there)
    return {name, CheckVerdict::kOk, text(here)};
  return {name, CheckVerdict::kWarn,
          fmt::format("here {}; on the other node {}", text(here), text(there)),
          remedy};
}

/// What a node's check of this name found, unless it failed.
std::set<std::string> details(const ordered_json& report, std::string_view name) {
  std::set<std::string> found;
  for (const ordered_json& check : report["checks"]) {
    if (check.is_object() && check.value("name", "") == name &&
        check.value("verdict", "") != to_string(CheckVerdict::kFail))
      found.insert(check.value("detail", ""));
  }
  return found;
}

/// "nvrtc-13.0-65be0db3", whatever the reason is.
std::set<std::string> chosen_nvrtc(const ordered_json& report) {
  std::set<std::string> found;
  for (const std::string& detail : details(report, "nvrtc chosen"))
    found.insert(detail.substr(0, detail.find_first_of(": ")));
  return found;
}

/// "KILN_JOBS=4"; not the place of the cache, which has a check of its own.
std::set<std::string> settings(const ordered_json& report) {
  std::set<std::string> found;
  for (const ordered_json& each : report["settings"]) {
    if (each.at("origin") != kDefaultOrigin && each.at("name") != "cache_dir")
      found.insert(fmt::format("{}={}", each.at("variable").get<std::string>(),
                               each.at("value").get<std::string>()));
  }
  return found;
}

std::set<std::string> only_in(const std::set<std::string>& a,
                              const std::set<std::string>& b) {
  std::set<std::string> found;
  std::ranges::set_difference(a, b, std::inserter(found, found.end()));
  return found;
}

/// "/home/a/.cache/kiln on nfs, read-write, locks work"
std::string cache_text(const ordered_json& cache) {
  const auto text = [&](const char* field, const char* otherwise) {
    const ordered_json found = cache.value(field, ordered_json());
    return found.is_null() ? std::string(otherwise) : found.get<std::string>();
  };
  return fmt::format("{} on {}, {}, locks: {}", text("root", "none"),
                     text("file_system", "an unknown file system"),
                     text("mode", "of unknown mode"), text("locks", "none"));
}

/// Throws nlohmann's type errors for a report with members of the wrong type.
std::vector<Check> differences(const ordered_json& here, const ordered_json& there,
                               const std::string& with) {
  const auto build = [](const ordered_json& report) {
    const auto kiln = report.value("kiln", ordered_json::object());
    return std::set<std::string>{kiln.value("version", "") + " " +
                                 kiln.value("build_id", "").substr(0, 12)};
  };
  std::vector<Check> checks{
      compare_sets("kiln" + with, build(here), build(there),
                   "install the same Kiln on all nodes"),
      compare_sets("toolchains" + with, values(here, "toolchains", "name"),
                   values(there, "toolchains", "name"),
                   "set KILN_TOOLCHAIN to a toolchain that both nodes have, or keys "
                   "will differ"),
      compare_sets("nvrtc chosen" + with, chosen_nvrtc(here), chosen_nvrtc(there),
                   "set KILN_TOOLCHAIN alike on all nodes, or keys will differ"),
      compare_sets("driver" + with, details(here, "driver"), details(there, "driver"),
                   "install the same driver on all nodes"),
      compare_sets("architectures" + with, values(here, "devices", "arch"),
                   values(there, "devices", "arch"), "warm for all of them: --arch")};
  if (there.contains("cache")) {  // not in a report of an older Kiln
    checks.push_back(compare_sets(
        "cache" + with, {cache_text(here["cache"])}, {cache_text(there["cache"])},
        "set KILN_CACHE_DIR alike on all nodes; a node finds the kernels that another "
        "node warmed only in a folder that both see"));
  }
  if (there.contains("settings")) {
    const auto ours = settings(here);
    const auto theirs = settings(there);
    Check check =
        ours == theirs
            ? compare_sets("settings" + with, ours, theirs, "")
            : compare_sets("settings" + with, only_in(ours, theirs),
                           only_in(theirs, ours), "set them alike on all nodes");
    checks.push_back(std::move(check));
  }
  return checks;
}

/// Null for what is not known.
template <typename T>
ordered_json json_of(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json cache_json(const CacheFacts& facts) {
  ordered_json locks = nullptr;
  if (facts.locks)
    locks = to_string(*facts.locks);
  return {{"root", facts.root},
          {"mode", facts.mode},
          {"owner", json_of(facts.owner)},
          {"permissions", or_null(facts.permissions)},
          {"file_system", or_null(facts.file_system)},
          {"network", json_of(facts.is_network)},
          {"free_bytes", json_of(facts.free_bytes)},
          {"free_inodes", json_of(facts.free_inodes)},
          {"lock_folder", or_null(facts.lock_folder)},
          {"locks", locks},
          {"index", facts.has_index},
          {"entries", facts.totals ? ordered_json(facts.totals->entries) : nullptr},
          {"bytes", facts.totals ? ordered_json(facts.totals->bytes) : nullptr},
          {"limit_bytes", facts.limit_bytes}};
}

/// Times in milliseconds since the start of the request.
ordered_json remote_json(const RemoteFacts& facts) {
  const auto ms = [](std::chrono::microseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const remote::TransferTimes& times = facts.times;
  ordered_json json{{"url", facts.url},
                    {"mode", facts.mode},
                    {"status", facts.status},
                    {"name_ms", ms(times.name)},
                    {"connect_ms", ms(times.connect)},
                    {"tls_ms", ms(times.tls)},
                    {"first_byte_ms", ms(times.first_byte)},
                    {"get_ms", ms(times.whole)}};
  json["proxy"] = or_null(facts.proxy);
  json["put_ms"] = facts.put ? ordered_json(ms(*facts.put)) : nullptr;
  json["clock_offset_s"] =
      facts.clock_offset ? ordered_json(facts.clock_offset->count()) : nullptr;
  return json;
}

}  // namespace

std::string_view to_string(CheckVerdict verdict) {
  return word_of(verdict, {"ok", "warn", "fail"});
}

Diagnosis diagnose(Context& context, BuildService& service) {
  Diagnosis diagnosis;
  probe_lock_folder(service, diagnosis);
  diagnosis.add({"kiln", CheckVerdict::kOk,
                 fmt::format("{} (build {}), {} kernel templates", version(),
                             std::string_view(build_id()).substr(0, 12),
                             service.catalog().names().size())});
  check_driver(service, diagnosis);
  check_toolchains(service, diagnosis);
  check_compile(context, service, diagnosis);
  check_cudnn(context, service, diagnosis);
  check_python(context, diagnosis);
  check_cache(service, diagnosis);
  check_remotes(context, diagnosis);
  return diagnosis;
}

ordered_json diagnosis_json(const Diagnosis& diagnosis) {
  bool ok = true;
  ordered_json checks = ordered_json::array();
  for (const Check& check : diagnosis.checks) {
    ok = ok && check.verdict != CheckVerdict::kFail;
    checks.push_back({{"name", check.name},
                      {"verdict", to_string(check.verdict)},
                      {"detail", check.detail},
                      {"remedy", check.remedy}});
  }
  ordered_json devices = ordered_json::array();
  for (const Device& info : diagnosis.devices) {
    devices.push_back({{"ordinal", info.ordinal},
                       {"name", info.name},
                       {"arch", to_string(info.capability)},
                       {"uuid", info.uuid},
                       {"pci_id", info.pci_id},
                       {"memory_bytes", info.memory_bytes},
                       {"multiprocessors", info.multiprocessors}});
  }
  ordered_json toolchains = ordered_json::array();
  for (const device::Toolchain& toolchain : diagnosis.toolchains) {
    ordered_json archs = ordered_json::array();
    for (const device::ComputeCapability capability : toolchain.facts.architectures)
      archs.push_back(to_string(capability));
    toolchains.push_back({{"name", toolchain.name()},
                          {"version", to_string(toolchain.facts.version)},
                          {"nvrtc_build_id", toolchain.id.nvrtc},
                          {"builtins_build_id", toolchain.id.builtins},
                          {"path", toolchain.nvrtc.native()},
                          {"found_in", toolchain.found_in},
                          {"archs", archs}});
  }
  ordered_json remotes = ordered_json::array();
  for (const RemoteFacts& facts : diagnosis.remotes)
    remotes.push_back(remote_json(facts));
  ordered_json settings = ordered_json::array();
  for (const auto& [name, variable, value, origin] : diagnosis.settings)
    settings.push_back(
        {{"name", name}, {"variable", variable}, {"value", value}, {"origin", origin}});
  return {{"ok", ok},
          {"kiln", {{"version", version()}, {"build_id", build_id()}}},
          {"checks", checks},
          {"devices", devices},
          {"toolchains", toolchains},
          {"cache", cache_json(diagnosis.cache)},
          {"remotes", remotes},
          {"settings", settings}};
}

Result<std::vector<Check>> compare_with(const ordered_json& here,
                                        const std::string& path) {
  const std::string text = KILN_TRY(from_input(read_text_file(path, kMaxReportBytes)));
  const auto there = ordered_json::parse(text, nullptr, false);
  const auto foreign =
      refuse("{} is no report of a node; `kiln doctor --json > FILE` writes one", path);
  if (!there.is_object() || !there.contains("checks"))
    return foreign;
  try {
    return differences(here, there, " against " + path);
  } catch (const nlohmann::json::exception&) {
    return foreign;  // a member of another type
  }
}

}  // namespace kiln::tools
