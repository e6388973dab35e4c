// kiln clear: remove entries by key, by filter, or all.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tools/entry_filter.h"
#include "tools/exit_code.h"
#include "tools/open_cache.h"
#include "tools/removal_output.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct Options {
  bool all = false;
  std::vector<std::string> keys;
  EntryFilterOptions filter;
  bool dry_run = false;
  bool yes = false;
};

Result<void> check_selection(const Options& options) {
  const int kinds = (options.all ? 1 : 0) + (options.keys.empty() ? 0 : 1) +
                    (is_given(options.filter) ? 1 : 0);
  if (kinds == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "say what to remove: keys, --arch, --template, --older-than, or --all");
  }
  if (kinds > 1) {
    return fail(ErrorCode::kInvalidArgument,
                "--all, keys and filters exclude each other: give one of the three");
  }
  return {};
}

bool asks(const Options& options) {
  // Everything but --all names what goes.
  return options.all && !options.yes && !options.dry_run;
}

/// Also where there is nothing: a script must not work until there is something.
Result<void> check_confirmation(const Context& context, const Options& options) {
  if (!asks(options) || (context.err.is_terminal() && ::isatty(STDIN_FILENO) == 1))
    return {};
  return fail(ErrorCode::kInvalidArgument,
              "clear --all removes everything; add --yes to confirm");
}

Result<void> confirm(const Context& context, const Options& options,
                     const cache::Cache& cache, std::size_t count) {
  if (!asks(options) || count == 0)
    return {};
  print_error(fmt::format("remove all {} entries of {}? [y/N] ", count,
                          cache.layout().root().native()));
  const std::string answer = KILN_TRY(read_input(context.stop->token()));
  if (!answer.starts_with('y') && !answer.starts_with('Y'))
    return fail(ErrorCode::kCancelled, "nothing was removed");
  return {};
}

Result<std::vector<cache::Entry>> select(cache::Cache& cache, const Config& config,
                                         const Options& options) {
  if (options.keys.empty()) {
    return cache.walk(
        KILN_TRY(make_query(config, options.filter)),
        options.all ? cache::Damaged::kInclude : cache::Damaged::kLeaveOut);
  }
  std::vector<cache::Entry> entries;
  for (const cache::Digest& key : KILN_TRY(resolve_keys(cache, options.keys))) {
    // One that cannot be described is damaged, and goes all the same.
    auto entry = cache.describe(key);
    entries.push_back(entry && *entry ? **entry : cache::Entry());
    entries.back().key = key;
  }
  return entries;
}

Result<int> run(Context& context, const Options& options) {
  KILN_TRY(check_selection(options));
  KILN_TRY(check_confirmation(context, options));
  const auto cache = KILN_TRY(open_cache(context.config));
  if (cache->mode() == cache::Mode::kReadOnly && !options.dry_run) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the cache is read-only: {}", cache->mode_reason()));
  }
  const auto entries = KILN_TRY(select(*cache, context.config, options));
  if (entries.empty())
    KILN_TRY(check_templates(context.config, options.filter));
  KILN_TRY(confirm(context, options, *cache, entries.size()));
  Removal removal{.keys = {}, .freed_bytes = 0, .dry_run = options.dry_run};
  std::optional<Error> failure;
  for (const cache::Entry& entry : entries) {
    if (context.stop->token().stop_requested())
      break;
    const auto freed = options.dry_run ? Result<std::uint64_t>(entry.size_bytes)
                                       : cache->remove(entry.key);
    if (!freed) {
      failure = freed.error();
      continue;
    }
    // Somebody else may have removed it first.
    if (*freed > 0) {
      removal.keys.push_back(entry.key);
      removal.freed_bytes += *freed;
    }
  }
  print_removal(context, removal);
  if (failure) {
    print_error(fmt::format("kiln: {} entries remain: {}\n",
                            entries.size() - removal.keys.size(), failure->message));
    return kSomeFailed;
  }
  return kAllDone;
}

}  // namespace

Run add_clear(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("KEY", options->keys, "Keys, or unique prefixes of 6 digits or more");
  app.add_flag("--all", options->all, "Every entry; asks on a terminal");
  add_filter_options(app, options->filter);
  add_age_option(app, options->filter);
  app.add_flag("--dry-run", options->dry_run, "Say what would go; remove nothing");
  app.add_flag("--yes", options->yes, "Do not ask");
  return [options](Context& context) {
    return finish_lookup(context, run(context, *options));
  };
}

}  // namespace kiln::tools
