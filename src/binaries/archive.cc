#include "binaries/archive.h"

#include <ar.h>

#include <cstddef>
#include <limits>
#include <string_view>

#include "util/try.h"
#include "util/units.h"

namespace kiln::binaries {
namespace {

constexpr std::string_view kArchiveMagic(ARMAG, SARMAG);
constexpr std::string_view kThinMagic = "!<thin>\n";

// The number in a header's field of decimal digits and blanks.
Result<std::uint64_t> size_in(ByteView header, const FileRange& file) {
  std::string_view digits =
      as_text(header).substr(offsetof(ar_hdr, ar_size), sizeof(ar_hdr::ar_size));
  digits = digits.substr(0, digits.find(' '));
  const auto size =
      parse_number(digits, {0, std::numeric_limits<std::uint32_t>::max() * 16ULL});
  if (!size || !as_text(header).ends_with(ARFMAG))
    return fail(ErrorCode::kCorrupt, "{}: bad archive: a bad member's header",
                file.name());
  return *size;
}

}  // namespace

bool is_archive(ByteView begin) {
  return as_text(begin).starts_with(kArchiveMagic) ||
         as_text(begin).starts_with(kThinMagic);
}

Result<void> read_archive(const FileRange& file,
                          const std::function<Result<void>(const FileRange&)>& take) {
  if (as_text(KILN_TRY(file.read(0, SARMAG))) == kThinMagic)
    return fail(ErrorCode::kUnavailable,
                "{} is a thin archive: name the files that it lists", file.name());
  for (std::uint64_t at = SARMAG; at < file.size();) {
    const Bytes header = KILN_TRY(file.read(at, sizeof(ar_hdr)));
    const std::uint64_t size = KILN_TRY(size_in(header, file));
    at += sizeof(ar_hdr);
    KILN_TRY(take(KILN_TRY(file.part(at, size))));
    at += size + size % 2;
  }
  return {};
}

}  // namespace kiln::binaries
