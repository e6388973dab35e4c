// kiln ls: what the cache holds.

#include <fmt/format.h>

#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/unix_time.h"
#include "tools/entry_filter.h"
#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "tools/verbs.h"
#include "util/nearest.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct LsOptions {
  EntryFilterOptions filter;
  std::string sort = "created";
  std::string limit;
};

Result<cache::SortBy> parse_sort(const std::string& text) {
  constexpr std::array<std::pair<const char*, cache::SortBy>, 5> kWords{
      {{"created", cache::SortBy::kCreated},
       {"used", cache::SortBy::kUsed},
       {"size", cache::SortBy::kSize},
       {"template", cache::SortBy::kTemplate},
       {"arch", cache::SortBy::kArch}}};
  std::vector<std::string> known;
  for (const auto& [word, sort] : kWords) {
    if (text == word)
      return sort;
    known.emplace_back(word);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--sort cannot be '{}'; there are: {}{}", text,
                          fmt::join(known, ", "), did_you_mean(text, known)));
}

/// "scale.cu: scale<float>": the file and the entry points of an own source, which its
/// object has. A damaged one is "(source)".
std::string source_label(const cache::Cache& cache, const cache::Entry& entry) {
  const auto object = cache.inspect(entry.key);
  if (!object || !*object)
    return entry_label(entry);
  const auto preimage = (*object)->preimage();
  const auto metadata = (*object)->metadata();
  std::string label = entry_label(entry);
  for (const Field& field : preimage ? preimage->list() : std::vector<Field>()) {
    if (field.label == "program_name")
      label = field.value;
  }
  std::vector<std::string> names;
  if (metadata) {
    for (const cache::EntryPoint& each : metadata->entry_points)
      names.push_back(each.name);
  }
  return names.empty() ? label : fmt::format("{}: {}", label, fmt::join(names, ", "));
}

void print_entries(const Context& context, const std::vector<cache::Entry>& entries,
                   const cache::Cache& cache, bool is_filtered) {
  if (entries.empty()) {
    print_error(fmt::format("{} {}\n", cache.layout().root().native(),
                            is_filtered ? "has nothing that matches" : "is empty"));
    return;
  }
  std::vector<std::vector<std::string>> rows;
  std::uint64_t bytes = 0;
  for (const cache::Entry& entry : entries) {
    rows.push_back(entry_row(entry, cache::unix_now_ns()));
    if (entry.template_name.empty())
      rows.back()[kKernelColumn] = source_label(cache, entry);
    bytes += entry.size_bytes;
  }
  print(format_table(entry_columns(), rows, context.out));
  // A pager that reads the table has the terminal to itself.
  if (context.out.is_terminal() || !context.err.is_terminal())
    print_error(fmt::format("{}, {}\n", counted(entries.size(), "entry", "entries"),
                            format_size(bytes)));
}

Result<int> run(Context& context, const LsOptions& options) {
  cache::ListQuery query = KILN_TRY(make_query(context.config, options.filter));
  query.sort = KILN_TRY(parse_sort(options.sort));
  if (!options.limit.empty()) {
    query.limit = KILN_TRY(
        parse_number("--limit", options.limit, {0, std::numeric_limits<int>::max()}));
  }
  const auto cache = KILN_TRY(open_cache(context.config));
  const auto entries = KILN_TRY(cache->list(query));
  if (entries.empty())
    KILN_TRY(check_templates(context.config, options.filter));
  if (context.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const cache::Entry& entry : entries) list.push_back(entry_json(entry));
    print_json({{"entries", list}});
  } else {
    print_entries(context, entries, *cache, is_given(options.filter));
  }
  return 0;
}

}  // namespace

Run add_ls(OptionSet& cli) {
  auto options = std::make_shared<LsOptions>();
  add_filter_options(cli, options->filter);
  cli.option("--sort", options->sort, "WORD",
             "created or used (newest first), size (largest first), template or arch "
             "(by name); default: created");
  cli.option("--limit", options->limit, "N", "At most N entries");
  return
      [options](Context& context) { return finish(context, run(context, *options)); };
}

}  // namespace kiln::tools
