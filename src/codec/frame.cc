#include "codec/frame.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include "util/little_endian.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::uint32_t kMagic = 0x574E4C4BU;  // "KLNW"

std::uint64_t checksum(std::uint32_t kind, ByteView payload) {
  // The kind seeds the hash; the length is part of it already.
  return XXH3_64bits_withSeed(payload.data(), payload.size(), kind);
}

}  // namespace

Bytes encode_frame(std::uint32_t kind, const Fields& fields) {
  const Bytes payload = fields.encode();
  Bytes out;
  out.reserve(kFrameHeaderBytes + payload.size());
  append_le(out, kMagic);
  append_le(out, kind);
  append_le(out, static_cast<std::uint64_t>(payload.size()));
  append_le(out, checksum(kind, payload));
  append(out, payload);
  return out;
}

Result<Frame> decode_frame(ByteView bytes) {
  const auto size = KILN_TRY(frame_bytes(bytes));
  if (size != bytes.size()) {
    return corrupt_message(
        fmt::format("{} bytes, its header says {}", bytes.size(), size));
  }
  const auto kind = load_le<std::uint32_t>(bytes, 4);
  const auto payload = bytes.subspan(kFrameHeaderBytes);
  if (checksum(kind, payload) != load_le<std::uint64_t>(bytes, 16))
    return corrupt_message("its checksum does not fit");
  return Frame{kind, KILN_TRY(Fields::decode(payload))};
}

Result<std::uint64_t> frame_bytes(ByteView start) {
  if (start.size() < kFrameHeaderBytes)
    return corrupt_message(fmt::format("{} bytes are no frame", start.size()));
  if (load_le<std::uint32_t>(start, 0) != kMagic)
    return corrupt_message("it does not begin as a frame");
  const auto payload = load_le<std::uint64_t>(start, 8);
  if (payload > kMaxPayloadBytes)
    return corrupt_message(
        fmt::format("a payload of {} bytes is over the limit", payload));
  return kFrameHeaderBytes + payload;
}

tl::unexpected<Error> corrupt_message(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "{}: {}", kMessageSubject, what);
}

}  // namespace kiln
