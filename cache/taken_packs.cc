#include "cache/taken_packs.h"

#include <fmt/format.h>

#include <chrono>

#include "cache/pack_name.h"
#include "codec/digest.h"
#include "codec/field_codec.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/units.h"
#include "util/write_file.h"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kLargest = 131072;  // more than a header's name may have
constexpr mode_t kMode = 0644;              // a job that cannot write the root reads it
constexpr auto kTakenFields = [](auto& codec, auto& pack) {
  auto& [name, serial, created_ns] = pack;
  codec("name", name);
  codec("serial", serial);
  codec("created_ns", created_ns);
};

/// Of the name without its endings.
std::string file_of(std::string_view name) {
  constexpr std::size_t kDigits = 32;
  return Digest::of(as_bytes(bare_pack_name(name))).hex().substr(0, kDigits);
}

}  // namespace

std::string order_text(std::uint64_t serial, std::int64_t created_ns) {
  using std::chrono::system_clock;
  const system_clock::time_point created{
      std::chrono::duration_cast<system_clock::duration>(
          std::chrono::nanoseconds(created_ns))};
  return created_ns == 0
             ? fmt::format("serial {}", serial)
             : fmt::format("serial {}, of {}", serial, format_time(created));
}

std::optional<TakenPack> TakenPacks::find(std::string_view name) const {
  const std::string file = file_of(name);
  if (folder_.empty() || !folder_.has(file).value_or(false))
    return std::nullopt;
  const auto bytes = read_file(folder_.path() / file, kLargest);
  if (!bytes || !*bytes)
    return std::nullopt;
  const auto fields = Fields::decode(**bytes);
  if (!fields)
    return std::nullopt;
  auto taken = read_fields<TakenPack>(*fields, "pack taken", kTakenFields);
  if (!taken || bare_pack_name(taken->name) != bare_pack_name(name))
    return std::nullopt;
  return *std::move(taken);
}

std::optional<TakenPack> TakenPacks::newer_than(const PackHeader& header,
                                                std::string_view name) const {
  auto last = find(header.name.empty() ? name : header.name);
  return last && header.serial < last->serial ? last : std::nullopt;
}

Result<void> TakenPacks::add(const PackHeader& header) const {
  if (folder_.empty() || header.name.empty())
    return {};
  const TakenPack taken{header.name, header.serial, header.created_ns};
  if (find(header.name) == taken)
    return {};
  KILN_TRY(folder_.check());
  return replace_file(folder_.path() / file_of(header.name),
                      fields_of(taken, kTakenFields).encode(), kMode);
}

}  // namespace kiln::cache
