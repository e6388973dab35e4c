#include "cache/pack_identity.h"

#include <fmt/format.h>

#include <chrono>

#include "cache/pack_format.h"
#include "codec/digest.h"
#include "codec/trusted_keys.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/units.h"
#include "util/write_file.h"

namespace kiln::cache {
namespace {

constexpr mode_t kMode = 0644;  // a job that cannot write the root reads it

std::string file_of(std::string_view name) {
  constexpr std::size_t kDigits = 32;
  return Digest::of(as_bytes(bare_pack_name(name))).hex().substr(0, kDigits);
}

}  // namespace

Result<void> check_pack_is(std::string_view own, std::string_view wanted) {
  if (own.empty())
    return fail(ErrorCode::kUntrusted,
                "the pack has no name, as packs of an older Kiln, and {} was "
                "asked for: it may be any; `kiln pack` makes one with a name",
                wanted);
  if (bare_pack_name(own) == bare_pack_name(wanted))
    return {};
  return fail(ErrorCode::kUntrusted,
              "the pack calls itself {}, and {} was asked for: somebody has renamed "
              "the pack, or the server sends another pack",
              own, wanted);
}

std::string order_text(const PackHeader& header) {
  using std::chrono::system_clock;
  const system_clock::time_point created(
      std::chrono::duration_cast<system_clock::duration>(
          std::chrono::nanoseconds(header.created_ns)));
  return fmt::format("serial {}{}", header.serial,
                     header.created_ns == 0 ? "" : ", of " + format_time(created));
}

std::string source_text(const PackHeader& header, std::string_view name) {
  return fmt::format("{}@{}", header.name.empty() ? name : header.name, header.serial);
}

std::optional<PackHeader> newer_taken(const OwnFolder& folder, const PackHeader& header,
                                      std::string_view name) {
  const std::string file = file_of(header.name.empty() ? name : header.name);
  if (folder.empty() || !folder.has(file).value_or(false))
    return std::nullopt;
  const auto bytes = read_file(folder.path() / file, pack::kMostHeaderBytes);
  if (!bytes || !*bytes || (*bytes)->size() < pack::kLeastHeaderBytes)
    return std::nullopt;
  const auto version = pack::version_of(**bytes);
  auto last = version ? pack::decode_header(**bytes, *version)
                      : Result<PackHeader>(tl::unexpect, version.error());
  return last && header.serial < last->serial ? std::optional(*std::move(last))
                                              : std::nullopt;
}

Result<void> remember_taken(const OwnFolder& folder, const PackHeader& header) {
  if (folder.empty() || header.name.empty())
    return {};
  KILN_TRY(folder.check());
  const Bytes bytes = KILN_TRY(pack::encode_header(header));
  return replace_file(folder.path() / file_of(header.name), bytes, kMode);
}

}  // namespace kiln::cache
