// kiln pull: fetches objects, or a pack, from remote caches.

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "build/build_options.h"
#include "tools/output/file_output.h"
#include "tools/output/progress.h"
#include "tools/pack_file.h"
#include "tools/remote/fetcher.h"
#include "tools/remote/remote_pack.h"
#include "tools/unpacking.h"
#include "tools/verbs.h"
#include "tools/wanted.h"
#include "util/scratch_file.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct PullOptions {
  std::vector<std::string> keys;
  std::string pack;
  std::string output;
  std::string wait;
  Taking taking;
  SelectionOptions selection;
};

Result<WantedList> find_work(Context& context, const PullOptions& options) {
  if (options.keys.empty())
    return find_requests(context, options.selection, true);
  WantedList work;
  for (const std::string& text : options.keys) {
    const auto key = Digest::from_hex(text);
    if (!key)
      return refuse(
          "'{}' is no whole key: 64 hex digits, as `kiln ls --json` "
          "prints them",
          text);
    if (std::ranges::find(work.wanted, *key, &Wanted::key) == work.wanted.end())
      work.wanted.push_back({*key, text, "", {}});
  }
  work.opened = cache::Cache::open(cache_options(context.config));
  return work;
}

Result<int> pull_objects(Context& context, const PullOptions& options, RemoteRun& run,
                         std::chrono::milliseconds wait) {
  const auto began = Clock::now();
  WantedList work = KILN_TRY(find_work(context, options));
  cache::Cache& cache = work.cache();
  if (cache.mode() != cache::Mode::kReadWrite)
    return fail(ErrorCode::kUnavailable,
                "nothing is pulled, since nothing can be stored: {}",
                cache.mode_reason());
  std::vector<Wanted> with_key;
  std::ranges::copy_if(work.wanted, std::back_inserter(with_key),
                       [](const Wanted& each) { return !each.error; });
  FetchReport report = [&] {
    Progress progress(context.err, with_key.size());
    return fetch_objects(run, cache, with_key, wait, progress);
  }();
  for (std::size_t i = 0; i < with_key.size(); ++i) {
    if (report.outcomes[i] == Pulled::kMissing)
      report.totals.add_problem(with_key[i],
                                {ErrorCode::kNotFound, "no server has the object"});
  }
  for (Wanted& each : work.wanted) {
    if (!each.error)
      continue;
    Error error = *each.error;
    report.totals.add_problem(std::move(each), std::move(error));
  }
  print_problems(report.totals);
  const std::uint64_t missing = report.count(Pulled::kMissing);
  const std::uint64_t failed = report.totals.problems.size() - missing;
  if (context.json)
    print_json(
        {{"objects", work.wanted.size()},
         {"hits", report.count(Pulled::kWasHere)},
         {"pulled", report.count(Pulled::kFetched)},
         {"missing", missing},
         {"failed", failed},
         {"bytes", report.totals.bytes},
         {"seconds", std::chrono::duration<double>(Clock::now() - began).count()},
         {"servers", servers_json(report.totals, "pulled")},
         {"problems", problems_json(report.totals)}});
  else
    print(context.out.fitted(
        fmt::format("{}: {} pulled, {}, {} already here{}{}\n",
                    counted(work.wanted.size(), "object", "objects"),
                    report.count(Pulled::kFetched), format_size(report.totals.bytes),
                    report.count(Pulled::kWasHere),
                    missing == 0 ? "" : fmt::format(", {} missing", missing),
                    failed == 0 ? "" : fmt::format(", {} failed", failed))));
  return exit_code_of(report.totals, work.bad_lines);
}

void print_kept(const Context& context, const std::string& file, const std::string& url,
                const cache::Pack& pack, std::uint64_t bytes) {
  if (context.json)
    print_json({{"file", file},
                {"url", url},
                {"objects", pack.object_count()},
                {"bytes", bytes}});
  else
    print(context.out.fitted(fmt::format(
        "{}: {}, {}, from {}\n", file,
        counted(pack.object_count(), "object", "objects"), format_size(bytes), url)));
}

Result<int> pull_pack(Context& context, const PullOptions& options, RemoteRun& run,
                      std::chrono::milliseconds wait) {
  KILN_TRY(check_pack_name(options.pack));
  Taking taking = options.taking;
  taking.name = options.pack;
  KILN_TRY(taking.parse());
  std::unique_ptr<cache::Cache> cache;
  std::optional<OutputFile> output;
  if (options.output.empty()) {
    cache = KILN_TRY(open_to_unpack(context));
  } else {
    KILN_TRY(check_output_path("-o", options.output));
    output.emplace(KILN_TRY(OutputFile::create(options.output)));
    cache::CacheOptions opened = cache_options(context.config);
    opened.make_root = opened.warns_when_off = false;
    cache = cache::Cache::open(std::move(opened));
  }
  // Of a pack without -o, and of what any pack decompresses to: the disk of the cache,
  // which usually has to take the objects.
  const std::filesystem::path root = cache->layout().root();
  const std::array scratch{root, root.parent_path(), temporary_folder()};
  UniqueFd kept;
  if (!output)
    kept = KILN_TRY(open_scratch(scratch));
  const int file = output ? output->descriptor() : kept.get();
  const auto trust = cache::TrustPolicy::of_this_process(context.config.trusted_uids,
                                                         context.config.trusted_gids);
  std::unique_ptr<const cache::Pack> pack;
  cache::KeyFile::Keys keys;
  std::string url;
  std::string minisig;
  std::uint64_t bytes = 0;
  const auto check = [&](std::size_t server, std::uint64_t size) -> Result<void> {
    bytes = size;
    url = run.address(server).pack_url(options.pack);
    minisig.clear();
    keys = KILN_TRY(run.trusted());
    taking.keys = keys.get();
    const PackSigning signing{.keys = keys.get(),
                              .is_needed = !run.address(server).takes_unsigned,
                              .name = options.pack,
                              .takes_nameless = taking.older,
                              .minisig = [&]() -> Result<std::string> {
                                minisig =
                                    KILN_TRY(fetch_minisig(run, server, options.pack));
                                return minisig;
                              }};
    pack = KILN_TRY(open_pack(file, url, trust, signing, scratch));
    return taking.check(pack->header(), cache.get());
  };
  KILN_TRY(fetch_pack(run, options.pack, wait,
                      KILN_TRY(remote::BodyFile::copy_of(file)), check));
  if (!output)
    return unpack_into_cache(context, *pack, url, taking, *cache);
  if (options.output != "-")
    KILN_TRY(replace_minisig(options.output, minisig));
  KILN_TRY(output->commit());
  taking.remember(*pack, *cache);
  print_kept(context, options.output, url, *pack, bytes);
  return kAllDone;
}

Result<int> run(Context& context, const PullOptions& options) {
  KILN_TRY(check_one_choice("pull", options.keys, options.pack, options.selection));
  if (options.pack.empty() && !options.output.empty())
    return refuse("pull: -o is for --pack");
  if (options.pack.empty() &&
      (options.taking.older || !options.taking.min_serial_given.empty()))
    return refuse("pull: --min-serial and --older are for --pack");
  std::chrono::milliseconds wait{0};
  if (!options.wait.empty())
    wait = KILN_TRY(parse_duration(options.wait));
  const auto remotes = KILN_TRY(RemoteRun::open(context, RemoteUse::kService));
  return options.pack.empty() ? pull_objects(context, options, *remotes, wait)
                              : pull_pack(context, options, *remotes, wait);
}

}  // namespace

Run add_pull(OptionSet& cli) {
  auto options = std::make_shared<PullOptions>();
  cli.argument("KEY", options->keys, "Objects with these keys, of 64 digits each");
  cli.option(
      "--pack", options->pack, "NAME",
      "Fetch this pack and put its objects into the cache, as `kiln unpack` does");
  add_selection_options(cli, options->selection);
  cli.group(kOutputGroup);
  cli.option("-o", options->output, "FILE",
             "Keep the pack as FILE instead, for KILN_SEED");
  cli.group(kFleetGroup);
  cli.option(
      "--wait", options->wait, "DURATION",
      "Ask for missing objects, or for a pack that no server can give yet, again "
      "and again for so long: 60, which is seconds, or 5m (default: 0)");
  options->taking.add_options(cli);
  cli.footer(
      "Fetches the kernels that `kiln warm` with the same words would build: the keys\n"
      "are made here, since servers have no list of keys. Each object is checked as\n"
      "`kiln verify` does, and needs a signature by a key of --keys, unless its\n"
      "server says unsigned=1.\n"
      "\n"
      "Examples:\n"
      "  kiln pull --remote https://cache.example/kiln --preset llama-3-8b --arch 9.0\n"
      "  kiln pull --pack job --wait 60\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
