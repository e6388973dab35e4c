#include "cache/pack_identity.h"

#include <fmt/format.h>

#include <chrono>

#include "cache/pack_format.h"
#include "codec/digest.h"
#include "codec/trusted_keys.h"
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

/// What `file` remembers, if `header` is of an older pack.
std::optional<PackHeader> newer_in(const OwnFolder& folder, const std::string& file,
                                   const PackHeader& header) {
  const auto bytes = folder.read(file, pack::kMostHeaderBytes);
  if (!bytes || bytes->size() < pack::kLeastHeaderBytes)
    return std::nullopt;
  const auto version = pack::version_of(*bytes);
  auto last = version ? pack::decode_header(*bytes, *version)
                      : Result<PackHeader>(tl::unexpect, version.error());
  return last && header.serial < last->serial ? std::optional(*std::move(last))
                                              : std::nullopt;
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
  return newer_in(folder, file_of(header.name.empty() ? name : header.name), header);
}

Result<void> remember_taken(const OwnFolder& folder, const PackHeader& header,
                            LastPack which) {
  const std::string name = file_of(header.name);
  if (folder.empty() || header.name.empty() ||
      (which == LastPack::kNewest && newer_in(folder, name, header)))
    return {};
  KILN_TRY(folder.check());
  const Bytes bytes = KILN_TRY(pack::encode_header(header));
  auto file = KILN_TRY(NewFile::with(folder.path() / name, bytes));
  const auto displaced = KILN_TRY(file.exchange(kMode));
  // Another may have taken a newer one since the memory was read.
  const auto newer = which == LastPack::kThis || displaced.empty()
                         ? std::nullopt
                         : newer_in(folder, displaced.filename(), header);
  return newer ? remember_taken(folder, *newer, which) : Result<void>();
}

}  // namespace kiln::cache
