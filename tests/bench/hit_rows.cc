// Hits: objects of several sizes by known key, with and without the check of the image,
// and a whole set of kernels by a new process.

#include <fmt/format.h>

#include <array>
#include <map>

#include "build/build_options.h"
#include "tests/bench/costs_children.h"
#include "tests/bench/floors.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

enum class Image : std::uint8_t { kAnyBytes, kCubin };

struct HitSize {
  const char* name;
  std::size_t bytes;  // of the whole object, about
  Limit limit;
};
constexpr std::array<HitSize, 4> kSizes{{
    {"4K", 4'000, {1, Seconds(3e-6)}},
    {"30K", 30'000, {1.4}},
    {"124K", 124'000, {1.4}},
    {"400K", 400'000, {1.4}},
}};
constexpr std::size_t kObjects = 16;  // of one size; they stay in the processor's cache
constexpr std::size_t kObjectOverhead = 1'000;  // header, metadata, preimage

/// Objects of one size in a cache of their own.
struct StoredKernels {
  std::shared_ptr<const ScratchFolder> scratch;
  std::unique_ptr<cache::Cache> cache;
  std::vector<Digest> keys;
  std::vector<std::string> paths;
};

Result<Bytes> payload(const ScratchFolder& scratch, const CubinWish& wish,
                      Image image) {
  if (image == Image::kAnyBytes)
    return Bytes(wish.bytes, std::byte{0x5a});
  const auto service = KILN_TRY(open_service(scratch.path()));
  return make_cubin(*KILN_TRY(open_nvrtc(*service)), wish);
}

Result<std::shared_ptr<StoredKernels>> store_kernels(const Settings& settings,
                                                     std::size_t bytes, Image image) {
  auto stored = std::make_shared<StoredKernels>();
  stored->scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  cache::CacheOptions options =
      cache_options(KILN_TRY(config_for(stored->scratch->path() / "cache")));
  if (image == Image::kAnyBytes)
    options.payload_check = nullptr;
  stored->cache = cache::Cache::open(std::move(options));
  const CubinWish wish{.architecture = {{9, 0}},
                       .entry_points = {"scaled_softmax_fwd"},
                       .bytes = bytes - kObjectOverhead};
  const Bytes content = KILN_TRY(payload(*stored->scratch, wish, image));
  for (std::size_t i = 0; i < kObjects; ++i) {
    Fields preimage;
    preimage.add("number", std::to_string(i));
    preimage.add("options", std::string(500, 'x'));
    const auto object = KILN_TRY(make_object(wish, content, std::move(preimage)));
    if (auto published = stored->cache->publish(object); published.error)
      return tl::unexpected(*published.error);
    stored->keys.push_back(object.key());
    stored->paths.push_back(stored->cache->layout().object(object.key()));
  }
  return stored;
}

Row hit_row(const Settings& settings, const HitSize& size, Image image) {
  const std::size_t passes = std::max<std::size_t>(
      1, settings.batch_calls * 100 / (size.bytes / 100 + 1000) / kObjects);
  const auto prepare = [=]() -> Result<Sides> {
    const auto stored = KILN_TRY(store_kernels(settings, size.bytes, image));
    const auto find_all = [=]() -> Result<void> {
      for (const Digest& key : stored->keys) {
        if (!stored->cache->find(key))
          return fail(ErrorCode::kNotFound, "a hit was a miss");
      }
      return {};
    };
    const auto an_object = [passes](const auto& pass) {
      return timed_each(passes, pass).map([](Seconds all) { return all / kObjects; });
    };
    return Sides{
        .measured = [=] { return an_object(find_all); },
        .floor =
            [=] { return an_object([&] { return read_and_hash(stored->paths); }); }};
  };
  const bool is_cubin = image == Image::kCubin;
  return {.name = fmt::format("hit/{}{}", size.name, is_cubin ? "/cubin" : ""),
          .what = fmt::format("object of {}B by known key{}", size.name,
                              is_cubin ? ", image checked" : ""),
          .floor = "open, fstat, read, XXH3-128, close",
          .limit = size.limit,
          .prepare = prepare};
}

/// A cache with an object for each of the first requests, as if it had been warmed; the
/// cubins are the real NVRTC's, with the right entry points, of about the real size.
struct WarmSet {
  std::shared_ptr<const ScratchFolder> scratch;
  std::vector<std::string> paths;
};

Result<std::shared_ptr<WarmSet>> store_set(const Settings& settings) {
  constexpr std::size_t kCubinBytes = 20'000;
  auto set = std::make_shared<WarmSet>();
  const auto [scratch, service] = KILN_TRY(scratch_service(settings.folder));
  set->scratch = scratch;
  const compile::Nvrtc& nvrtc = *KILN_TRY(open_nvrtc(*service));
  std::map<std::pair<std::string, std::string>, Bytes> cubins;
  for (const KernelRequest& request : softmax_requests(settings.set_kernels)) {
    const KeyedRequest key = KILN_TRY(keyed(*service, request));
    const CubinWish wish{
        .architecture = key.target.architecture,
        .entry_points = key.request.as_template()->kernel->entry_points(),
        .bytes = kCubinBytes};
    Bytes& cubin = cubins[{to_string(wish.architecture), wish.entry_points.front()}];
    if (cubin.empty())
      cubin = KILN_TRY(make_cubin(nvrtc, wish));
    const auto object = KILN_TRY(make_object(wish, cubin, service->preimage(key)));
    if (auto published = service->cache().publish(object); published.error)
      return tl::unexpected(*published.error);
    set->paths.push_back(service->cache().layout().object(key.key));
  }
  return set;
}

Row set_row(const Settings& settings) {
  const std::string count = std::to_string(settings.set_kernels);
  const auto prepare = [=]() -> Result<Sides> {
    const auto set = KILN_TRY(store_set(settings));
    const std::string root = set->scratch->path() / "cache";
    return Sides{
        .measured =
            [=] {
              return wall(child_command(kHitsChild, {root, count}));
            },
        .floor = [=] { return timed([&] { return read_and_hash(set->paths); }); }};
  };
  return {.name = "set",
          .what = fmt::format("hits of {} kernels by a new process", count),
          .floor = "the same reads and hashes, here",
          .limit = {1.5, Seconds(10e-3)},
          .prepare = prepare};
}

/// Hits by services of this process, of which one writes an event for each.
Row told_row(const Settings& settings) {
  struct Services {
    std::shared_ptr<WarmSet> set;
    std::unique_ptr<BuildService> told;
    std::unique_ptr<BuildService> quiet;
    std::vector<KeyedRequest> requests;
  };
  const auto prepare = [=]() -> Result<Sides> {
    const auto services = std::make_shared<Services>();
    services->set = KILN_TRY(store_set(settings));
    Config config = KILN_TRY(config_for(services->set->scratch->path() / "cache"));
    services->quiet = KILN_TRY(BuildService::open(config, {.journal = "kernels"}));
    config.events = services->set->scratch->path() / "events";
    services->told = KILN_TRY(BuildService::open(config, {.journal = "kernels"}));
    for (const KernelRequest& request : softmax_requests(settings.set_kernels))
      services->requests.push_back(KILN_TRY(keyed(*services->quiet, request)));
    const auto fetch_all = [services](BuildService& service) -> Result<void> {
      for (const KeyedRequest& request : services->requests)
        KILN_TRY(service.fetch(request));
      return {};
    };
    return Sides{
        .measured = [=] { return timed([&] { return fetch_all(*services->told); }); },
        .floor = [=] { return timed([&] { return fetch_all(*services->quiet); }); }};
  };
  return {
      .name = "set/told",
      .what = fmt::format("hits of {} kernels with KILN_EVENTS", settings.set_kernels),
      .floor = "the same hits without KILN_EVENTS",
      .limit = {2},
      .prepare = prepare};
}

}  // namespace

std::vector<Row> hit_rows(const Settings& settings) {
  std::vector<Row> rows;
  for (const Image image : {Image::kAnyBytes, Image::kCubin}) {
    for (const HitSize& size : kSizes) rows.push_back(hit_row(settings, size, image));
  }
  rows.push_back(set_row(settings));
  rows.push_back(told_row(settings));
  return rows;
}

}  // namespace kiln::bench
