// kiln clear: remove entries by key, by filter, or all.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "build/build_options.h"
#include "key/memo_file.h"
#include "tools/entry_filter.h"
#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct ClearOptions {
  bool all = false;
  bool precompiled = false;
  std::vector<std::string> keys;
  EntryFilterOptions filter;
  bool dry_run = false;
  bool yes = false;
};

Result<void> check_selection(const ClearOptions& options) {
  const int kinds = (options.all ? 1 : 0) + (options.precompiled ? 1 : 0) +
                    (options.keys.empty() ? 0 : 1) + (is_given(options.filter) ? 1 : 0);
  if (kinds == 0) {
    return refuse(
        "name the entries to remove: keys, --arch, --template, --signer, --keys, "
        "--older-than, --precompiled, or --all");
  }
  if (kinds > 1) {
    return refuse(
        "--all, --precompiled, keys and filters exclude each other: give one "
        "of the four");
  }
  return {};
}

/// Keys name what they remove, and precompiled headers only save time.
bool asks(const ClearOptions& options) {
  return (options.all || is_given(options.filter)) && !options.yes && !options.dry_run;
}

/// Checked even if there is nothing to remove, so that a script fails at its first run.
Result<void> check_confirmation(const Context& context, const ClearOptions& options) {
  if (!asks(options) || (context.err.is_terminal() && ::isatty(STDIN_FILENO) == 1))
    return {};
  return refuse(options.all ? "clear --all removes everything; add --yes to confirm"
                            : "clear removes all that its filters select; add --yes to "
                              "confirm, or --dry-run to see how many entries");
}

using Selection = std::vector<cache::Entry>;

Result<void> confirm(const Context& context, const ClearOptions& options,
                     const cache::Cache& cache, const Selection& selection) {
  if (!asks(options) || selection.empty())
    return {};
  std::uint64_t bytes = 0;
  for (const cache::Entry& entry : selection) bytes += entry.size_bytes;
  print_error(fmt::format("remove {}{}, {}, of {}? [y/N] ", options.all ? "all " : "",
                          counted(selection.size(), "entry", "entries"),
                          format_size(bytes), cache.layout().root().native()));
  const std::string answer = KILN_TRY(read_input(context.stop->token()));
  if (!answer.starts_with('y') && !answer.starts_with('Y'))
    return fail(ErrorCode::kCancelled, "nothing was removed");
  return {};
}

Result<Selection> select(cache::Cache& cache, const cache::ListQuery& query,
                         const ClearOptions& options) {
  if (options.precompiled)
    return Selection();
  if (options.keys.empty())
    return cache.walk(
        query, options.all ? cache::Damaged::kInclude : cache::Damaged::kLeaveOut);
  Selection entries;
  for (const Digest& key : KILN_TRY(resolve_keys(cache, options.keys))) {
    // An entry that cannot be described is damaged, and is removed all the same.
    auto entry = cache.describe(key);
    entries.push_back(entry && *entry ? **entry : cache::Entry());
    entries.back().key = key;
  }
  return entries;
}

/// Removes entries one by one. `failure`: of the last that could not be removed.
Removal remove(const Context& context, cache::Cache& cache, const Selection& selection,
               bool dry_run, std::optional<Error>& failure) {
  Removal removal;
  removal.dry_run = dry_run;
  for (const cache::Entry& entry : selection) {
    if (context.stop->token().stop_requested())
      break;
    const auto freed =
        dry_run ? Result<std::uint64_t>(entry.size_bytes) : cache.remove(entry.key);
    if (!freed) {
      failure = freed.error();
    } else if (*freed > 0) {  // else another process has removed it first
      removal.keys.push_back(entry.key);
      removal.freed_bytes += *freed;
    }
  }
  return removal;
}

/// They are of no entry, so only what removes everything removes them.
void remove_precompiled(const PrecompiledStore& store, Removal& removal) {
  const PrecompiledTotals removed = removal.dry_run ? store.totals() : store.clear();
  removal.precompiled = removed.entries;
  removal.freed_bytes += removed.bytes;
}

Result<int> run(Context& context, const ClearOptions& options) {
  KILN_TRY(check_selection(options));
  const auto query = KILN_TRY(make_query(context.config, options.filter));
  KILN_TRY(check_confirmation(context, options));
  const auto cache = KILN_TRY(open_cache(context.config));
  if (cache->mode() == cache::Mode::kReadOnly && !options.dry_run) {
    return fail(ErrorCode::kUnavailable, "the cache is read-only: {}",
                cache->mode_reason());
  }
  const Selection selection = KILN_TRY(select(*cache, query, options));
  if (selection.empty() && is_given(options.filter)) {
    KILN_TRY(check_templates(context.config, options.filter));
    note_no_match(*cache);
  }
  KILN_TRY(confirm(context, options, *cache, selection));
  std::optional<Error> failure;
  Removal removal = remove(context, *cache, selection, options.dry_run, failure);
  if (options.all || options.precompiled)
    remove_precompiled(precompiled_store(context.config, *cache), removal);
  // What was hashed before is not believed after it, either.
  const Result<void> forgotten =
      options.all && !options.dry_run
          ? key::clear_memos(kiln::counted(*cache, cache->layout().memo()))
          : Result<void>();
  print_removal(context, removal);
  if (failure) {
    print_error(fmt::format("kiln: {} entries remain: {}\n",
                            selection.size() - removal.keys.size(), failure->message));
    return kSomeFailed;
  }
  if (!forgotten) {
    print_error(fmt::format("kiln: {}\n", forgotten.error().message));
    return kSomeFailed;
  }
  return kAllDone;
}

}  // namespace

Run add_clear(OptionSet& cli) {
  auto options = std::make_shared<ClearOptions>();
  cli.argument("KEY", options->keys, "Keys, or unique prefixes of 6 digits or more");
  cli.flag("--all", options->all, "Every entry");
  cli.flag("--precompiled", options->precompiled,
           "The precompiled headers, which save time only");
  add_filter_options(cli, options->filter);
  cli.option("--keys", options->filter.keys, "FILE",
             "What `verify --keys FILE` reports: entries that these public keys do not "
             "trust");
  cli.option("--older-than", options->filter.older_than, "DURATION",
             "Entries not used for this long, with a unit: 30m, 12h, 7d");
  cli.group(kRemovalGroup);
  cli.flag("--dry-run", options->dry_run,
           "Say how many entries would go; remove nothing");
  cli.flag("--yes", options->yes, "Do not ask");
  cli.footer(
      "Filters combine with AND. Before --all or a filter removes anything, clear\n"
      "says how much, and asks on a terminal. Elsewhere it needs --yes: without --yes\n"
      "the exit status is 2 and nothing is removed. Keys by name never ask.\n"
      "\n"
      "Examples:\n"
      "  kiln clear 3f9c21 8e01b7                  two entries\n"
      "  kiln clear --older-than 30d --dry-run     entries not used for a month\n"
      "  kiln clear --keys trusted.pub             what `verify --keys` reports\n"
      "  kiln clear --all --yes                    all entries, in a script\n");
  return [options](Context& context) {
    return finish_lookup(context, run(context, *options));
  };
}

}  // namespace kiln::tools
