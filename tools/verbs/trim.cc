// kiln trim: removes the least recently used entries until the rest fits.

#include <fmt/format.h>

#include <memory>

#include "tools/open_cache.h"
#include "tools/output/entries.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct TrimOptions {
  std::string max_size;
  bool dry_run = false;
};

Result<int> run(Context& context, const TrimOptions& options) {
  cache::TrimOptions trim;
  trim.limit_bytes = context.config.cache_limit_bytes;
  if (!options.max_size.empty()) {
    trim.limit_bytes = KILN_TRY(parse_size(options.max_size));
    trim.target_percent = 100;                   // trim to the given size, not below it
    trim.minimum_age = std::chrono::seconds(0);  // and remove new entries too
  }
  trim.dry_run = options.dry_run ? cache::DryRun::kYes : cache::DryRun::kNo;
  const auto cache = KILN_TRY(open_named_cache(context));
  const cache::TrimResult result = KILN_TRY(cache->trim(trim));
  const PrecompiledTotals precompiled =
      precompiled_store(context.config, *cache).trim(trim.dry_run);
  print_removal(context, {.keys = result.removed_keys,
                          .precompiled = precompiled.entries,
                          .freed_bytes = result.freed_bytes + precompiled.bytes,
                          .dry_run = options.dry_run});
  const std::uint64_t bytes = KILN_TRY(cache->stats()).totals.bytes;
  if (options.max_size.empty() && !options.dry_run && bytes > trim.limit_bytes)
    print_error(fmt::format(
        "{} are left, over the limit of {}: entries used in the last minute stay, "
        "unless you name a size: `kiln trim --max-size SIZE`\n",
        format_size(bytes), format_size(trim.limit_bytes)));
  return 0;
}

}  // namespace

Run add_trim(OptionSet& cli) {
  auto options = std::make_shared<TrimOptions>();
  cli.group(kRemovalGroup);
  cli.option("--max-size", options->max_size, "SIZE",
             "Trim to this size: 10GiB, 500M (default: $KILN_CACHE_SIZE or 10GiB, "
             "and then to 90 % of it); precompiled headers to $KILN_PCH_SIZE");
  cli.flag("--dry-run", options->dry_run,
           "Say how many entries would go; remove nothing");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
