#include "key/scan_memo.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codec/fields.h"
#include "key/opened_files.h"
#include "key/options.h"
#include "util/bytes.h"

namespace kiln::key {
namespace {

void add(Fields& all, std::string_view label, const std::vector<Directive>& list) {
  for (const Directive& directive : list)
    all.add(fmt::format("{} {} {}", label, static_cast<int>(directive.lookup),
                        directive.line),
            directive.operand);
}

}  // namespace

std::optional<Digest> determining(
    const SourceKeyInput& input, const Directives& source,
    std::span<const std::filesystem::path> toolkit_folders,
    const std::filesystem::path& standard_headers) {
  const auto& [text, options, macros, include_dirs, memory_headers, names, program_name,
               has_name, form, working_directory, paths] = input;
  std::ignore = std::tie(text, has_name, paths);  // no scan depends on them
  const auto before = pre_includes(options);
  // What names the time of the build may be different in each.
  if (source.build_time || (source.list.empty() && before.empty()))
    return std::nullopt;
  Fields all;
  // <x> is not searched in the folder of the program's name.
  const bool is_angled = std::ranges::all_of(
      source.list, [](const Directive& one) { return one.lookup == Lookup::kAngled; });
  if (!is_angled || !before.empty() || !memory_headers.empty())
    all.add("program", program_name);
  add(all, "include", source.list);
  add(all, "value", source.macro_values);
  for (const PathMacro& macro : source.path_macros)
    all.add("macro " + macro.name, macro.value);
  all.add("names file", source.names_file ? "1" : "0");
  all.add("form", form == SourceForm::kNvrtc ? "nvrtc" : "kiln");
  all.add("working directory", working_directory);
  for (const std::string& option : options) all.add("option", option);
  for (const auto& [action, macro] : macros)
    all.add(action == MacroAction::kDefine ? "-D" : "-U", macro);
  for (const auto& folder : include_dirs) all.add("-I", folder.native());
  for (const auto& [name, header] : memory_headers)
    all.add("memory_header " + name, Digest::of(as_bytes(header)).hex());
  for (const std::string& name : names) all.add("name", name);
  for (const auto& folder : toolkit_folders) all.add("toolkit", folder.native());
  all.add("standard headers", standard_headers.native());
  return all.digest();
}

ScanMemo::Headers ScanMemo::find(const Digest& name) const {
  Headers found;
  {
    const MutexLock lock(mutex_);
    const auto known =
        std::ranges::find(last_, name, &decltype(last_)::value_type::first);
    if (known != last_.end())
      found = known->second;
  }
  return found != nullptr && !has_changed(found->lookups) ? found : nullptr;
}

void ScanMemo::keep(const Digest& name, Headers headers) {
  if (headers->varying || !headers->toolkit.empty() ||
      !std::ranges::all_of(headers->files, [&](const HeaderFile& file) {
        const auto place = headers->lookups.files.find(file.path.native());
        return file.settled && file.stamp.reliable && file.varies.empty() &&
               place != headers->lookups.files.end() && place->second == file.stamp;
      }))
    return;
  const MutexLock lock(mutex_);
  std::erase_if(last_, [&](const auto& known) { return known.first == name; });
  if (last_.size() == kMost)
    last_.pop_front();
  last_.emplace_back(name, std::move(headers));
}

}  // namespace kiln::key
