// Publishing into a nearly empty cache and into one of 100,000 entries, and listing the
// newest of the latter.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "tests/bench/floors.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

struct FilledCache {
  std::shared_ptr<const ScratchFolder> scratch;
  std::unique_ptr<cache::Cache> cache;
};

cache::Fields numbered(const char* label, std::size_t number) {
  cache::Fields preimage;
  preimage.add(label, std::to_string(number));
  return preimage;
}

/// With `entries` small objects, all in the index.
Result<std::shared_ptr<FilledCache>> fill(const Settings& settings,
                                          std::size_t entries) {
  auto filled = std::make_shared<FilledCache>();
  filled->scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  const std::filesystem::path root = filled->scratch->path() / "cache";
  {
    cache::CacheOptions options = cache_options(KILN_TRY(config_for(root)));
    options.sync = cache::Sync::kNone;
    options.payload_check = nullptr;
    const auto cache = cache::Cache::open(std::move(options));
    const CubinWish wish{.architecture = {{9, 0}}, .entry_points = {"f"}, .bytes = 0};
    const std::string payload(200, 'x');
    for (std::size_t i = 0; i < entries; ++i) {
      const auto published = cache->publish(
          KILN_TRY(make_object(wish, as_bytes(payload), numbered("entry", i))));
      if (published.error)
        return tl::unexpected(*published.error);
    }
    cache->flush(std::chrono::minutes(5));
    KILN_TRY(cache->list({.limit = 1}));  // reads what the index still lacks
  }
  filled->cache = KILN_TRY(open_cache(root));
  return filled;
}

/// Objects to publish again and again.
Result<std::shared_ptr<std::vector<cache::StoredObject>>> make_objects(
    const Settings& settings) {
  constexpr std::size_t kCubinBytes = 64 * 1024 - 600;
  const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  const auto service =
      KILN_TRY(Service::open(KILN_TRY(config_for(scratch->path() / "cache"))));
  const CubinWish wish{.architecture = {{9, 0}},
                       .entry_points = {"scaled_softmax_fwd"},
                       .bytes = kCubinBytes};
  const Bytes cubin = KILN_TRY(make_cubin(*KILN_TRY(open_nvrtc(*service)), wish));
  auto objects = std::make_shared<std::vector<cache::StoredObject>>();
  for (std::size_t i = 0; i < settings.publishes; ++i)
    objects->push_back(KILN_TRY(make_object(wish, cubin, numbered("published", i))));
  return objects;
}

/// The mean of all, each taken away again before the next sample.
template <typename Publish>
Result<Seconds> each_once(const std::vector<cache::StoredObject>& objects,
                          const Publish& publish) {
  const Seconds all = KILN_TRY(timed([&]() -> Result<void> {
    for (const cache::StoredObject& object : objects) KILN_TRY(publish(object));
    return {};
  }));
  return all / objects.size();
}

Result<Seconds> publish_all(cache::Cache& cache,
                            const std::vector<cache::StoredObject>& objects) {
  auto mean = each_once(objects, [&](const auto& object) -> Result<void> {
    const cache::PublishResult result = cache.publish(object);
    if (result.error)
      return tl::unexpected(*result.error);
    if (result.outcome != cache::Published::kStored)
      return fail(ErrorCode::kUnavailable, "it was published before");
    return {};
  });
  cache.flush(std::chrono::seconds(10));  // not beside the next sample
  for (const cache::StoredObject& object : objects)
    KILN_TRY(cache.remove(object.key()));
  return mean;
}

Result<Seconds> write_all(const cache::Layout& layout,
                          const std::vector<cache::StoredObject>& objects) {
  constexpr const char* kName = "bench-floor";
  const auto folder = [&](const cache::StoredObject& object) {
    return layout.object_folder(std::to_integer<unsigned>(object.key().bytes()[0]));
  };
  // Two objects may share a folder, so that each is taken away at once.
  Seconds all{0};
  for (const cache::StoredObject& object : objects) {
    all += KILN_TRY(
        timed([&] { return write_and_link(folder(object), kName, object.file()); }));
    const std::string path = folder(object) + "/" + kName;
    if (::unlink(path.c_str()) != 0)
      return posix_error("unlink", path, errno);
  }
  return all / objects.size();
}

Row publish_row(const Settings& settings, std::size_t entries) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto filled = KILN_TRY(fill(settings, entries));
    const auto objects = KILN_TRY(make_objects(settings));
    KILN_TRY(publish_all(*filled->cache, *objects));  // now every folder is there
    return Sides{.measured = [=] { return publish_all(*filled->cache, *objects); },
                 .floor = [=] { return write_all(filled->cache->layout(), *objects); }};
  };
  return {.name = fmt::format("publish/{}", entries),
          .what = fmt::format("publish of 64 KiB at {} entries", entries),
          .floor = "open, write, fdatasync, close, link, unlink",
          .limit = {1.3},
          .prepare = prepare};
}

/// The floor of this one is the same publish into a nearly empty cache.
Row growth_row(const Settings& settings) {
  constexpr std::size_t kFew = 10;
  const std::size_t many = settings.many_entries;
  const auto prepare = [=]() -> Result<Sides> {
    const auto full = KILN_TRY(fill(settings, many));
    const auto empty = KILN_TRY(fill(settings, kFew));
    const auto objects = KILN_TRY(make_objects(settings));
    return Sides{.measured = [=] { return publish_all(*full->cache, *objects); },
                 .floor = [=] { return publish_all(*empty->cache, *objects); }};
  };
  return {.name = "publish/growth",
          .what = fmt::format("publish of 64 KiB at {} entries", many),
          .floor = fmt::format("the same at {} entries", kFew),
          .limit = {1.1},
          .prepare = prepare};
}

Row ls_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto filled = KILN_TRY(fill(settings, settings.many_entries));
    return Sides{
        .measured = [=]() -> Result<Seconds> {
          return KILN_TRY(run_process({program_beside("kiln"), "ls", "--cache-dir",
                                       filled->scratch->path() / "cache", "--limit",
                                       "100", "--json"}))
              .wall;
        },
        .floor = {}};
  };
  return {.name = "ls",
          .what = fmt::format("ls, newest 100 of {}", settings.many_entries),
          .floor = "",
          .limit = {1, Seconds(50e-3)},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> publish_rows(const Settings& settings) {
  std::vector<Row> rows{publish_row(settings, 10)};
  if (settings.long_rows) {
    rows.push_back(publish_row(settings, settings.many_entries));
    rows.push_back(growth_row(settings));
  }
  return rows;
}

std::vector<Row> list_rows(const Settings& settings) {
  if (!settings.long_rows)
    return {};
  return {ls_row(settings)};
}

}  // namespace kiln::bench
