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
  return refuse("--sort cannot be '{}'; there are: {}{}", text, fmt::join(known, ", "),
                did_you_mean(text, known));
}

void print_entries(const Context& context, const LsOptions& options,
                   const std::vector<cache::Entry>& entries, const cache::Cache& cache,
                   bool has_more) {
  if (entries.empty() && !has_more) {
    if (!cache.is_absent() && !is_given(options.filter))
      print_note(fmt::format("{} is empty\n", cache.layout().root().native()));
    return;
  }
  std::vector<std::vector<std::string>> rows;
  std::uint64_t bytes = 0;
  for (const cache::Entry& entry : entries) {
    rows.push_back(entry_row(entry, cache::unix_now_ns()));
    bytes += entry.size_bytes;
  }
  if (!rows.empty())
    print(format_table(entry_columns(options.sort), rows, context.out));
  // A pager that reads the table has the terminal to itself.
  if (context.out.is_terminal() || !context.err.is_terminal())
    print_note(fmt::format("{}, {}{}\n", counted(entries.size(), "entry", "entries"),
                           format_size(bytes), has_more ? "; there are more" : ""));
}

Result<int> run(Context& context, const LsOptions& options) {
  cache::ListQuery query = KILN_TRY(make_query(context.config, options.filter));
  query.sort = KILN_TRY(parse_sort(options.sort));
  if (!options.limit.empty()) {
    // One more, to see whether there are more.
    query.limit = 1 + KILN_TRY(parse_number("--limit", options.limit,
                                            {0, std::numeric_limits<int>::max()}));
  }
  const auto cache = KILN_TRY(open_named_cache(context));
  auto entries = KILN_TRY(cache->list(query));
  cache->add_signers(entries);
  const bool has_more = query.limit == entries.size();
  if (has_more)
    entries.pop_back();
  if (entries.empty() && !has_more && is_given(options.filter)) {
    KILN_TRY(check_templates(context.config, options.filter));
    note_no_match(*cache);
  }
  if (context.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const cache::Entry& entry : entries) list.push_back(entry_json(entry));
    print_json({{"entries", list}});
  } else {
    print_entries(context, options, entries, *cache, has_more);
  }
  return 0;
}

}  // namespace

Run add_ls(OptionSet& cli) {
  auto options = std::make_shared<LsOptions>();
  add_filter_options(cli, options->filter);
  cli.group(kOutputGroup);
  cli.option("--sort", options->sort, "WORD",
             "created, used, size, template, arch; times newest first, sizes largest "
             "first (default: created)");
  cli.option("--limit", options->limit, "N", "At most N entries");
  cli.footer(
      "Examples:\n"
      "  kiln ls --sort size --limit 10            the ten largest entries\n"
      "  kiln ls --file scale.cu --arch 9.0        the builds of a source of yours\n"
      "  kiln ls --signer 3C7EA22FB76E83A8         what a key has signed\n"
      "  kiln ls --template rmsnorm_fwd --json     for a script\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
