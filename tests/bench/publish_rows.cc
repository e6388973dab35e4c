// Publishing into a nearly empty cache and into one of 100,000 entries, and listing the
// newest of the latter.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "build/build_options.h"
#include "cache/file_system.h"
#include "tests/bench/floors.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

struct FilledCache {
  std::shared_ptr<const ScratchFolder> scratch;
  std::unique_ptr<cache::Cache> cache;
};

Fields numbered(const char* label, std::size_t number) {
  Fields preimage;
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
    // Reads what the index still lacks; of a folder that has just changed it notes
    // nothing, as it might change once more in the same tick of the clock.
    std::this_thread::sleep_for(std::chrono::seconds(3));
    KILN_TRY(cache->list({.limit = 1}));
  }
  filled->cache = KILN_TRY(open_cache(root));
  return filled;
}

/// Objects without end, all of one size and each new. They are not taken away again: a
/// file system passes over what was freed in the last seconds, and that costs.
class ObjectSource {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ObjectSource>> make(
      const Settings& settings) {
    constexpr std::size_t kCubinBytes = 64 * 1024 - 600;
    const auto [scratch, service] = KILN_TRY(scratch_service(settings.folder));
    auto source = std::make_shared<ObjectSource>();
    source->wish_ = {.architecture = {{9, 0}, device::ArchSuffix::kNone},
                     .entry_points = {"scaled_softmax_fwd"},
                     .bytes = kCubinBytes};
    source->cubin_ =
        KILN_TRY(make_cubin(*KILN_TRY(open_nvrtc(*service)), source->wish_));
    return source;
  }

  [[nodiscard]] Result<std::vector<cache::StoredObject>> next(std::size_t count) {
    std::vector<cache::StoredObject> objects;
    for (std::size_t i = 0; i < count; ++i)
      objects.push_back(
          KILN_TRY(make_object(wish_, cubin_, numbered("published", made_++))));
    return objects;
  }

 private:
  CubinWish wish_;
  Bytes cubin_;
  std::size_t made_ = 0;
};

using ObjectSourcePointer = std::shared_ptr<ObjectSource>;

/// The mean time of `use` for `count` objects.
template <typename Use>
Result<Seconds> use_some(ObjectSource& source, std::size_t count, const Use& use) {
  const auto objects = KILN_TRY(source.next(count));
  auto object = objects.begin();
  return timed_each(count, [&] { return use(*object++); });
}

Result<Seconds> publish_some(cache::Cache& cache, ObjectSource& source,
                             std::size_t count) {
  const auto mean =
      use_some(source, count, [&](const cache::StoredObject& object) -> Result<void> {
        const cache::PublishResult result = cache.publish(object);
        return result.error ? tl::unexpected(*result.error) : Result<void>();
      });
  cache.flush(std::chrono::seconds(10));  // not beside the next sample
  return mean;
}

/// Bare writes into the same folders, as the names say.
Result<Seconds> write_some(const cache::Layout& layout, ObjectSource& source,
                           std::size_t count) {
  return use_some(source, count, [&](const cache::StoredObject& object) {
    const auto first = std::to_integer<unsigned>(object.key().bytes()[0]);
    return write_and_link(layout.object_folder(first), object.key().hex(),
                          object.file());
  });
}

/// So that no publish has to make its folder.
Result<void> make_folders(const cache::Layout& layout) {
  for (unsigned folder = 0; folder < cache::kFolderCount; ++folder) {
    if (cache::make_folders(cache::real_file_system(), layout.object_folder(folder)) !=
        0)
      return fail(ErrorCode::kIo, "cannot make " + layout.object_folder(folder));
  }
  return {};
}

Row publish_row(const Settings& settings, std::size_t entries) {
  const std::size_t count = settings.publishes;
  const auto prepare = [=]() -> Result<Sides> {
    const auto filled = KILN_TRY(fill(settings, entries));
    const auto source = KILN_TRY(ObjectSource::make(settings));
    KILN_TRY(make_folders(filled->cache->layout()));
    return Sides{
        .measured = [=] { return publish_some(*filled->cache, *source, count); },
        .floor = [=] { return write_some(filled->cache->layout(), *source, count); }};
  };
  return {.name = fmt::format("publish/{}", entries),
          .what = fmt::format("publish of 64 KiB at {} entries", entries),
          .floor = "open, write, fdatasync, close, link, unlink",
          .limit = {1.3},
          .prepare = prepare};
}

Row ls_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto filled = KILN_TRY(fill(settings, settings.many_entries));
    return Sides{.measured = [=] {
      return wall({program_beside("kiln"), "ls", "--cache-dir",
                   filled->scratch->path() / "cache", "--limit", "100", "--json"});
    }};
  };
  return {.name = "ls",
          .what = fmt::format("ls, newest 100 of {}", settings.many_entries),
          .limit = {1, Seconds(50e-3)},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> publish_rows(const Settings& settings) {
  std::vector<Row> rows{publish_row(settings, 10)};
  if (settings.long_rows)
    rows.push_back(publish_row(settings, settings.many_entries));
  return rows;
}

std::vector<Row> list_rows(const Settings& settings) {
  if (!settings.long_rows)
    return {};
  return {ls_row(settings)};
}

}  // namespace kiln::bench
