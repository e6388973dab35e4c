// Any bytes as a worker's message, in both directions, and as a compiler's log.

#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include "compile/compile_log.h"
#include "compile/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::ignore = kiln::compile::frame_bytes(bytes);
  std::ignore = kiln::compile::decode_request(bytes);
  std::ignore = kiln::compile::decode_reply(bytes);
  const std::string_view log(reinterpret_cast<const char*>(data), size);
  std::ignore = kiln::compile::parse_resource_use(log);
  std::ignore = kiln::compile::diagnostics(log);
  return 0;
}
