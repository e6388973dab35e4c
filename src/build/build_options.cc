#include "build/build_options.h"

#include <memory>
#include <stop_token>
#include <utility>

#include "build/artifact.h"
#include "build/dead_mounts.h"
#include "build/wait_notice.h"
#include "compile/pool/cores.h"
#include "compile/pool/worker_memory.h"
#include "util/absolute_path.h"
#include "util/log.h"

namespace kiln {

LazyCount build_jobs(const Config& config) {
  const LazyCount jobs =
      config.jobs ? LazyCount(*config.jobs) : LazyCount(compile::usable_cores);
  return jobs.bounded_by([] { return compile::WorkerMemory::of_process().room(); });
}

cache::CacheOptions cache_options(const Config& config) {
  cache::CacheOptions options;
  // Not normalized: if `a` is a link, a/.. is another folder. Without a working
  // directory the path stays relative, and the cache is off for that reason.
  options.root = absolute_path(config.cache_dir);
  options.is_named = !config.cache_dir_by.name.empty();
  options.limit_bytes = config.cache_limit_bytes;
  options.trusted_uids = config.trusted_uids;
  options.trusted_gids = config.trusted_gids;
  options.payload_check = check_stored_payload;
  if (!config.store_source)
    options.stored_part = without_source;
  options.slots = build_jobs(config);
  options.build_limit = config.compile_timeout;
  options.runtime_dir = config.runtime_dir;
  options.counters_dir = config.counters_dir;
  options.seeds = config.seeds;
  options.keys = config.keys;
  options.seed_wait = config.no_jit ? cache::kLongSeedWait : cache::kSeedWait;
  options.ask_mount = ask_mount(config);
  return options;
}

OwnFolder counted(cache::Cache& cache, const std::filesystem::path& folder) {
  return {cache.reach(folder),
          [&counters = cache.counters()] { counters.add(cache::Counter::kUntrusted); }};
}

OwnFolder node_folder(cache::Cache& cache, std::string_view name) {
  return cache.mode() == cache::Mode::kReadWrite && cache.lock_folder().usable()
             ? counted(cache, cache.lock_folder().path / name)
             : OwnFolder();
}

OwnFolder precompiled_folder(const Config& config, cache::Cache& cache) {
  const bool is_local = cache.lock_folder().path == cache.layout().locks();
  // A worker has other descriptors: it cannot reach a root that this process holds.
  if (precompiled_limit(config) == 0 || cache.mode() != cache::Mode::kReadWrite ||
      !is_local || cache.is_held())
    return {};
  return counted(cache, cache.layout().precompiled());
}

compile::PoolOptions pool_options(const Config& config, const LazyCount& jobs,
                                  cache::Cache& cache) {
  compile::PoolOptions options;
  options.max_workers = jobs;
  options.worker.path = config.worker.value_or("");
  options.worker.set_by = config.worker_by.name;
  options.time_limit = config.compile_timeout;
  options.memory_limit_bytes = config.worker_memory_bytes;
  if (cache.mode() == cache::Mode::kReadWrite && !cache.is_held())  // a path to show
    options.reproductions = counted(cache, cache.layout().repro());
  options.scratch = precompiled_folder(config, cache);
  options.on_refused = [&counters = cache.counters()] {
    counters.add(cache::Counter::kBuildRefused);
  };
  options.acquire_slot =
      [&cache](std::stop_token stop) -> Result<std::shared_ptr<void>> {
    cache::Slots::Acquired acquired = cache.acquire_slot(
        {.stop = std::move(stop), .on_wait = WaitNotice("a build slot")});
    if (acquired.outcome == cache::SlotOutcome::kCancelled)
      return fail(ErrorCode::kCancelled, "stopped while waiting for a build slot");
    if (acquired.outcome == cache::SlotOutcome::kBypassed &&
        acquired.waited >= WaitNotice::kFirstAfter)
      log(LogLevel::kWarning, {"building without a build slot: ", acquired.reason});
    return std::make_shared<cache::Slots::Acquired>(std::move(acquired));
  };
  return options;
}

}  // namespace kiln
