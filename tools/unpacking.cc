#include "tools/unpacking.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>

#include "build/build_options.h"
#include "cache/pack_identity.h"
#include "toolchain/toolchain_files.h"
#include "tools/in_threads.h"
#include "tools/output/entries.h"
#include "tools/output/progress.h"
#include "tools/output/standard_streams.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMostAtATime = 4ULL << 20U;

/// Whose signers a process that is killed has not remembered.
constexpr std::size_t kMostUnsaid = 256;

struct Unpacked {
  cache::Origin origin{};
  Mutex mutex;  // of all below, while threads unpack
  std::uint64_t stored = 0;
  std::uint64_t already_there = 0;
  std::uint64_t failed = 0;
  std::uint64_t revoked = 0;
  LostResults lost{};
  std::vector<cache::Made> there{};  // stored, or already there
  ordered_json problems = ordered_json::array();
};

void add_problem(Unpacked& unpacked, const Digest& key, const Error& error) {
  ++unpacked.failed;
  print_error(fmt::format("{}: {}\n", key.hex(), printable_lines(error.message)));
  unpacked.problems.push_back({{"key", key.hex()}, {"error", error_json(error)}});
}

void unpack_object(const cache::Pack& pack, const cache::PackRow& row,
                   cache::Cache& cache, Unpacked& unpacked) {
  const auto object = pack.read(row);
  if (!object) {
    const MutexLock lock(unpacked.mutex);
    return add_problem(unpacked, row.key,
                       {ErrorCode::kCorrupt,
                        fmt::format("{} check: {}", to_string(object.error().check),
                                    object.error().detail)});
  }
  const cache::PublishResult published = cache.publish(*object);
  const bool is_lost = published.error && published.error->code == ErrorCode::kIo;
  const MutexLock lock(unpacked.mutex);
  if (is_lost && unpacked.lost.has_given_up())
    return;  // others have said it
  unpacked.lost.count(is_lost);
  if (published.error)
    return add_problem(unpacked, row.key, *published.error);
  ++(published.outcome == cache::Published::kStored ? unpacked.stored
                                                    : unpacked.already_there);
  unpacked.there.push_back(made(*object));
  if (unpacked.there.size() >= kMostUnsaid)
    cache.remember_signers(std::exchange(unpacked.there, {}), unpacked.origin);
}

/// In threads, see kStoringThreads.
void unpack_objects(const Context& context, const cache::Pack& pack,
                    const TrustedKeys* keys, cache::Cache& cache, Unpacked& unpacked) {
  Progress progress(context.err, pack.object_count());
  const HeldBytes held(kMostAtATime);
  const auto is_over = [&] {
    const MutexLock lock(unpacked.mutex);
    return unpacked.lost.has_given_up() || context.stop->token().stop_requested();
  };
  const auto unpack = [&](std::size_t i) {
    const cache::PackRow& row = pack.rows()[i];
    if (row.kind == cache::PackKind::kToolchain)
      return;
    const std::string name = row.key.hex();
    if (keys != nullptr && keys->revoked_objects.contains(row.key)) {
      const MutexLock lock(unpacked.mutex);
      ++unpacked.revoked;
      return print_error(fmt::format("{}: not stored: it is revoked\n", name));
    }
    const auto share = held.take(row.size);
    if (is_over())
      return;
    progress.start(name);
    unpack_object(pack, row, cache, unpacked);
    progress.finish(name, std::nullopt);
  };
  in_threads(kStoringThreads, pack.rows().size(), context.stop->token(), unpack);
}

/// Later builds and look-ups here then use the NVRTC that built the pack; look-ups that
/// can build nothing also those recorded before. Returns its name.
std::optional<std::string> record_toolchains(const cache::Pack& pack,
                                             cache::Cache& cache) {
  std::vector<device::Toolchain> records;
  for (const std::string& text : pack.toolchains())
    std::ranges::move(device::parse_records(text), std::back_inserter(records));
  // As the header has them: rows have an order of their own.
  std::ranges::stable_sort(records, {}, [&](const device::Toolchain& each) {
    return std::ranges::find(pack.header().toolchains,
                             fmt::format("{} {}", each.name(), to_string(each.id)));
  });
  // No pack displaces all that was there.
  records.resize(std::min(records.size(), device::kMostRecorded / 2));
  const OwnFolder folder = kiln::counted(cache, cache.layout().toolchains());
  for (auto each = records.rbegin(); each != records.rend(); ++each) {
    if (auto written = device::write_recorded(folder, *each); !written)
      log(LogLevel::kWarning,
          {"the toolchain is not recorded: ", written.error().message});
  }
  return records.empty() ? std::nullopt : std::optional(records.front().name());
}

/// What came of it. `toolchain` is recorded now.
void print_unpacked(const Context& context, const cache::Pack& pack,
                    const std::string& file, const Unpacked& unpacked,
                    const std::optional<std::string>& toolchain) {
  if (context.json) {
    ordered_json by = ordered_json::array();
    for (const Signature& signature : pack.signatures())
      by.push_back(key_name(signature.key));
    print_json({{"file", file},
                {"objects", pack.object_count()},
                {"stored", unpacked.stored},
                {"already_there", unpacked.already_there},
                {"failed", unpacked.failed},
                {"revoked", unpacked.revoked},
                {"skipped", pack.unknown_rows()},
                {"header", header_json(pack.header())},
                {"toolchain", toolchain ? ordered_json(*toolchain) : nullptr},
                {"signed_by", by},
                {"problems", unpacked.problems}});
  } else {
    const std::string header = header_text(pack.header());
    print(context.out.fitted(fmt::format(
        "{}: {}: {} stored, {} already there{}{}{}{}{}{}\n", file,
        counted(pack.object_count(), "object", "objects"), unpacked.stored,
        unpacked.already_there,
        unpacked.failed == 0 ? "" : fmt::format(", {} failed", unpacked.failed),
        unpacked.revoked == 0 ? "" : fmt::format(", {} revoked", unpacked.revoked),
        pack.unknown_rows() == 0
            ? ""
            : fmt::format(", {} skipped, of a kind that a later Kiln has added",
                          pack.unknown_rows()),
        toolchain ? fmt::format("; of {}", *toolchain) : "", header.empty() ? "" : "; ",
        header)));
    const bool gave_up = unpacked.lost.has_given_up();
    if (gave_up || context.stop->token().stop_requested())
      print(context.out.fitted(
          fmt::format("the rest is not unpacked, since {} the same command again goes "
                      "on from here\n",
                      gave_up ? "nothing more can be stored: make room, and"
                              : "the program was stopped:")));
  }
}

OwnFolder taken_folder(cache::Cache& cache) {
  return cache.mode() == cache::Mode::kOff
             ? OwnFolder()
             : kiln::counted(cache, cache.layout().packs());
}

}  // namespace

void Taking::add_options(OptionSet& cli) {
  cli.option("--min-serial", min_serial_given, "N",
             "Refuse a pack whose serial, which `kiln pack` has printed, is less");
  cli.flag("--older", older,
           "Take a pack that is older than the last one of its name in this cache");
}

Result<void> Taking::parse() {
  if (!min_serial_given.empty())
    min_serial = KILN_TRY(
        parse_number("--min-serial", min_serial_given, {0, cache::kMostSerial}));
  return {};
}

Result<void> Taking::check(const cache::PackHeader& header, cache::Cache* cache) const {
  std::string why;
  if (header.serial < min_serial)
    why = fmt::format(
        "--min-serial {} asks for a newer pack: the server, a proxy or a copy is "
        "behind",
        min_serial);
  else if (const auto last =
               cache == nullptr || older
                   ? std::nullopt
                   : cache::newer_taken(taken_folder(*cache), header, name))
    why = fmt::format(
        "this cache has taken {}: the server, a proxy or a copy is behind. --older "
        "takes the older pack",
        order_text(*last));
  if (why.empty())
    return {};
  return fail(ErrorCode::kUntrusted, "the pack {} has {}, and {}",
              header.name.empty() ? name : header.name, order_text(header), why);
}

void Taking::remember(const cache::Pack& pack, cache::Cache& cache) const {
  // A pack that anybody may have made says nothing of the packs of its name.
  if (cache.mode() != cache::Mode::kReadWrite || pack.signers().empty() ||
      !cache::check_pack_is(pack.header().name, name))
    return;
  if (const auto done = cache::remember_taken(
          taken_folder(cache), pack.header(),
          older ? cache::LastPack::kThis : cache::LastPack::kNewest);
      !done)
    log(LogLevel::kWarning,
        {"an older pack will not be noticed: ", done.error().message});
}

Result<std::unique_ptr<cache::Cache>> open_to_unpack(const Context& context) {
  cache::CacheOptions options = cache_options(context.config);
  options.warns_when_off = false;
  auto cache = cache::Cache::open(std::move(options));
  if (cache->mode() != cache::Mode::kReadWrite)
    return fail(ErrorCode::kUnavailable,
                "nothing is unpacked, since nothing can be stored: {}",
                cache->mode_reason());
  return cache;
}

int unpack_into_cache(Context& context, const cache::Pack& pack,
                      const std::string& file, const Taking& taking,
                      cache::Cache& cache) {
  Unpacked unpacked;
  unpacked.origin = {pack.signers(), source_text(pack.header(), taking.name)};
  for (const auto& [key, why] : pack.bad_rows())
    add_problem(unpacked, key, {ErrorCode::kCorrupt, std::string(why)});
  unpack_objects(context, pack, taking.keys, cache, unpacked);
  cache.remember_signers(unpacked.there, unpacked.origin);
  std::sort(unpacked.problems.begin(), unpacked.problems.end(),
            [](const ordered_json& a, const ordered_json& b) {
              return a.at("key") < b.at("key");
            });
  const bool gave_up = unpacked.lost.has_given_up();
  const bool is_whole = !gave_up && !context.stop->token().stop_requested();
  const auto toolchain =
      is_whole ? record_toolchains(pack, cache) : std::optional<std::string>();
  if (is_whole)
    taking.remember(pack, cache);
  print_unpacked(context, pack, file, unpacked, toolchain);
  if (gave_up)
    return kUnavailable;
  return unpacked.failed == 0 ? kAllDone : kSomeFailed;
}

}  // namespace kiln::tools
