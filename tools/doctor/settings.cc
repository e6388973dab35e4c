// Which settings are in force, and where each comes from; and variables of the
// environment that look like a setting and are none.

#include "build/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tools/doctor/doctor.h"
#include "util/nearest.h"

namespace kiln::tools {
namespace {

constexpr std::string_view kPrefix = "KILN_";

/// Those that are read beside the settings; docs/guide.md has a row for each.
constexpr std::array<std::string_view, 6> kOthers{
    "KILN_SHARDS",        "KILN_NVRTC_STANDIN", "KILN_COMPAT", "KILN_EXTENSION_TIMEOUT",
    "KILN_PYTHON_STRICT", "KILN_FFI_LIBRARY"};
/// Of the test kit, and of one's own tests.
constexpr std::array<std::string_view, 2> kOtherGroups{"SIMULATED_", "TEST_"};

std::vector<std::string> known_variables() {
  std::vector<std::string> known;
  for (const Setting& each : every_setting()) known.emplace_back(each.variable);
  known.insert(known.end(), kOthers.begin(), kOthers.end());
  return known;
}

/// Those that are set, without their values.
std::vector<std::string> variables_set() {
  std::vector<std::string> names;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view text = *each;
    if (text.starts_with(kPrefix))
      names.emplace_back(text.substr(0, text.find('=')));
  }
  std::ranges::sort(names);
  return names;
}

/// A password of a URL is not for a report, nor is a query, which may be one:
/// "https://u:p@c/kiln?sig=x" is "https://...@c/kiln?...".
std::string without_passwords(std::string text) {
  std::size_t at = 0;
  while ((at = text.find("://", at)) != std::string::npos) {
    at += 3;
    std::size_t end = std::min(text.find(' ', at), text.size());
    if (const std::size_t query = text.find('?', at); query < end) {
      text.replace(query + 1, end - query - 1, "...");
      end = query;
    }
    const std::size_t host = text.substr(0, end).rfind('@');
    if (host != std::string::npos && host >= at)
      text.replace(at, host - at, "...");
  }
  return text;
}

Check check_names(const std::vector<SettingFacts>& settings) {
  std::vector<std::string> set;
  for (const SettingFacts& each : settings) {
    if (each.origin != kDefaultOrigin)
      set.push_back(fmt::format("{}={} ({})", each.variable, each.value, each.origin));
  }
  return {"settings", CheckVerdict::kOk,
          set.empty() ? "every setting has its default"
                      : fmt::format("{}; every other setting has its default",
                                    fmt::join(set, ", "))};
}

}  // namespace

void check_settings(const std::vector<SettingOption>& given, Diagnosis& diagnosis) {
  const Environment environment = process_environment();
  for (const Setting& each : every_setting()) {
    SettingFacts facts{.name = std::string(each.name()),
                       .variable = each.variable,
                       .value = each.fallback,
                       .origin = std::string(kDefaultOrigin)};
    if (auto value = environment(each.variable); value && !value->empty()) {
      facts.value = without_passwords(*std::move(value));
      facts.origin = "environment";
    }
    const auto option = std::ranges::find(given, &each, &SettingOption::setting);
    if (option != given.end() && !option->value.empty()) {
      facts.value = without_passwords(option->value);
      facts.origin = option->name;
    }
    diagnosis.settings.push_back(std::move(facts));
  }
  diagnosis.add(check_names(diagnosis.settings));
  const auto known = known_variables();
  std::vector<std::string> words;
  for (const std::string& name : known) words.push_back(name.substr(kPrefix.size()));
  for (const std::string& name : variables_set()) {
    const bool is_known =
        std::ranges::find(known, name) != known.end() ||
        std::ranges::any_of(kOtherGroups, [&](std::string_view group) {
          return std::string_view(name).substr(kPrefix.size()).starts_with(group);
        });
    if (is_known)
      continue;
    // Without what all of them have: it is no likeness.
    const auto meant = nearest(std::string_view(name).substr(kPrefix.size()), words);
    diagnosis.add({"settings", CheckVerdict::kWarn,
                   fmt::format("{} is set, and Kiln knows no such variable", name),
                   meant ? fmt::format("set {}{} if that is meant", kPrefix, *meant)
                         : "look for its name in docs/guide.md, \"Settings\""});
  }
}

}  // namespace kiln::tools
