// A message between two processes of one build: a kind and Fields, with a checksum. The
// reader still treats every byte as hostile: a broken library may have written some.
//
// Frame: u32 magic, u32 kind, u64 payload bytes, u64 XXH3-64 of kind, length and
// payload, then the payload, a Fields encoding. Little-endian.

#pragma once

#include <cstdint>
#include <string_view>

#include "codec/fields.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

inline constexpr std::size_t kFrameHeaderBytes = 24;
inline constexpr std::uint64_t kMaxPayloadBytes = 1ULL << 30U;

struct Frame {
  std::uint32_t kind = 0;
  Fields fields;
};

[[nodiscard]] Bytes encode_frame(std::uint32_t kind, const Fields& fields);

/// Decodes one whole frame. Errors: kCorrupt, naming the fault; never a crash. Memory
/// is bounded by a small multiple of the frame's own size, whatever its length fields
/// say.
[[nodiscard]] Result<Frame> decode_frame(ByteView frame);

/// The size in bytes of the frame that begins with `start` (kFrameHeaderBytes or more).
/// Errors: kCorrupt for a wrong magic or a payload over kMaxPayloadBytes.
[[nodiscard]] Result<std::uint64_t> frame_bytes(ByteView start);

/// The prefix of every error about a message.
inline constexpr std::string_view kMessageSubject = "worker message";

/// kCorrupt: "worker message: <what>".
[[nodiscard]] tl::unexpected<Error> corrupt_message(std::string_view what);

}  // namespace kiln
