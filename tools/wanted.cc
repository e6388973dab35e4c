#include "tools/wanted.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "build/artifact.h"
#include "build/build_options.h"
#include "build/entry_label.h"
#include "cudnn/plan_service.h"
#include "toolchain/toolchain_files.h"
#include "tools/catalog.h"
#include "tools/entry_filter.h"
#include "tools/in_threads.h"
#include "tools/open_cache.h"
#include "util/try.h"

namespace kiln::tools {

Wanted wanted_of(const BuildItem& item) {
  Wanted wanted{.key = {}, .label = item.label, .arch = item.arch};
  if (const auto* const error = std::get_if<Error>(&item.keyed))
    wanted.error = *error;
  else
    wanted.key = *key_of(item);
  return wanted;
}

bool are_requests(const SelectionOptions& selection) {
  return selection.all || selection.quick || !selection.manifests.empty() ||
         !selection.presets.empty() || !selection.architectures.profiles.empty() ||
         !selection.driver.empty() || selection.skip_bad ||
         std::ranges::any_of(selection.templates, [](const std::string& text) {
           return text.find(':') != std::string::npos;
         });
}

Result<void> check_one_choice(std::string_view verb,
                              const std::vector<std::string>& keys,
                              const std::string& pack,
                              const SelectionOptions& selection) {
  const bool selects = are_requests(selection) || !selection.templates.empty() ||
                       !selection.architectures.lists.empty();
  if ((keys.empty() ? 0 : 1) + (pack.empty() ? 0 : 1) + (selects ? 1 : 0) <= 1)
    return {};
  return refuse("{}: KEY, --pack and a selection by other words exclude each other",
                verb);
}

Result<WantedList> find_requests(Context& context, const SelectionOptions& selection,
                                 bool make_root) {
  Config config = context.config;
  config.template_dirs = template_folders(config, selection.catalog);
  config.for_driver = KILN_TRY(parse_driver_option(selection.driver));
  WantedList work;
  work.service =
      make_root ? KILN_TRY(open_to_build(
                      config, {.stop = context.stop->token(), .asks_remotes = false}))
                : KILN_TRY(open_to_look(context, config));
  PlanService plans(*work.service, context.stop->token());
  const BuildReport report =
      KILN_TRY(list_items(context, *work.service, plans, selection));
  work.bad_lines = report.bad_lines.value_or(0);
  std::set<Digest> seen;
  std::map<std::string, std::pair<std::size_t, device::Toolchain>> toolchains;
  for (const BuildItem& item : report.items) {
    const Digest* const key = key_of(item);
    if (key != nullptr && !seen.insert(*key).second)
      continue;
    work.wanted.push_back(wanted_of(item));
    if (const device::Toolchain* const chosen = chosen_toolchain(item))
      ++toolchains.try_emplace(to_string(chosen->id), 0, *chosen).first->second.first;
  }
  std::vector<std::pair<std::size_t, device::Toolchain>> counted;
  for (auto& [id, each] : toolchains) counted.push_back(std::move(each));
  std::ranges::stable_sort(counted, std::ranges::greater(),
                           [](const auto& each) { return each.first; });
  for (auto& [count, toolchain] : counted)
    work.toolchains.push_back(std::move(toolchain));
  return work;
}

Result<WantedList> find_entries(const Context& context,
                                const SelectionOptions& selection,
                                const EntryNames& names) {
  WantedList work;
  work.opened = KILN_TRY(open_named_cache(context));
  const EntryFilterOptions filter{
      selection.architectures.lists, selection.templates, "", {}, names};
  const auto entries = KILN_TRY(work.cache().walk(
      KILN_TRY(make_query(context.config, filter)), cache::Damaged::kInclude));
  if (entries.empty())
    KILN_TRY(check_templates(context.config, filter));
  for (const cache::Entry& entry : entries)
    work.wanted.push_back(
        {entry.key, entry_label(entry), entry.arch, {}, entry.created_ns});
  const OwnFolder folder =
      kiln::counted(work.cache(), work.cache().layout().toolchains());
  work.toolchains = device::read_records(folder).value_or(work.toolchains);
  return work;
}

void add_source_option(OptionSet& cli, bool& with_source) {
  cli.flag("--with-source", with_source,
           "Also sources and logs of programs beneath `kiln run`");
}

std::uint64_t bytes_to_read(const cache::Cache& cache, const Digest& key) {
  std::error_code error;
  const auto size = std::filesystem::file_size(cache.layout().object(key), error);
  return error ? kMostHeld : size;
}

Result<cache::StoredObject> sound_object(const cache::Cache& cache, const Digest& key,
                                         Source source) {
  auto object = KILN_TRY(cache.inspect(key));
  if (!object)
    return fail(ErrorCode::kNotFound, "it is not in the cache");
  if (const auto verified = object->verify_fully(); !verified)
    return fail(ErrorCode::kCorrupt, "{} check: {}", to_string(verified.error().check),
                verified.error().detail);
  if (source == Source::kOut) {
    if (auto copy = KILN_TRY(without_source(*object)))
      return *std::move(copy);
  }
  return *std::move(object);
}

}  // namespace kiln::tools
