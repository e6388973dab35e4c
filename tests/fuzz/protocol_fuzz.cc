// Any bytes as a worker's message, in both directions, and as a compiler's log. No
// mutation finds a hash, so the message is read a second time with its own made to fit.

#include <xxhash.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include "compile/protocol/protocol.h"
#include "compile/worker/compile_log.h"
#include "tests/fuzz/require.h"
#include "util/little_endian.h"

namespace {

namespace compile = kiln::compile;
using kiln::Bytes;
using kiln::ByteView;
using kiln::fuzz::require;

/// What was understood is sent again as a message that is understood.
void read(ByteView frame) {
  std::ignore = kiln::frame_bytes(frame);
  if (const auto request = compile::decode_request(frame)) {
    const auto again = compile::decode_request(compile::encode_request(*request));
    require(again && *again == *request);
  }
  if (const auto reply = compile::decode_reply(frame)) {
    const Bytes sent = compile::encode_reply(*reply);
    const auto again = compile::decode_reply(sent);
    require(again && compile::encode_reply(*again) == sent);
  }
}

void store(Bytes& frame, std::size_t offset, ByteView bytes) {
  std::copy(bytes.begin(), bytes.end(),
            frame.begin() + static_cast<std::ptrdiff_t>(offset));
}

/// The magic, the length and the hash as the rest of the frame needs them.
void repair(Bytes& frame) {
  static const Bytes sample = compile::encode_reply(compile::Hello{"x"});
  store(frame, 0, ByteView(sample).first(4));
  const auto kind = kiln::load_le<std::uint32_t>(frame, 4);
  const ByteView payload = ByteView(frame).subspan(kiln::kFrameHeaderBytes);
  Bytes tail;
  kiln::append_le(tail, std::uint64_t{payload.size()});
  kiln::append_le(
      tail, std::uint64_t{XXH3_64bits_withSeed(payload.data(), payload.size(), kind)});
  store(frame, 8, tail);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  if (size >= kiln::kFrameHeaderBytes) {
    Bytes frame(bytes.begin(), bytes.end());
    repair(frame);
    read(frame);
  }
  const std::string_view log(reinterpret_cast<const char*>(data), size);
  std::ignore = compile::parse_resource_use(log);
  std::ignore = compile::diagnostics(log);
  std::ignore = compile::says_out_of_memory(log);
  return 0;
}
