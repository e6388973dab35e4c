#include "remote/transfer.h"

#include <algorithm>
#include <array>

#include "codec/message.h"

namespace kiln {

template <>
inline constexpr auto kLastEnumerator<remote::Method> = remote::Method::kPut;
template <>
inline constexpr auto kLastEnumerator<remote::TransferEnd> =
    remote::TransferEnd::kBodyFile;

}  // namespace kiln

namespace kiln::remote {
namespace {

// Other kinds than those of compile/protocol.
constexpr MessageForms kForms{
    message_form<TransferRequest>(0x100),
    message_form<TransferCancel>(0x101),
    message_form<HelperHello>(0x102, kHelloFields),
    message_form<TransferReply>(0x103),
    message_form<Ping>(0x104),
};

}  // namespace

std::string_view to_string(TransferEnd end) {
  constexpr std::array<std::string_view, 8> kNames{"answered", "connect",   "tls",
                                                   "timeout",  "too_large", "broken",
                                                   "helper",   "body_file"};
  return kNames[static_cast<std::size_t>(end)];
}

std::chrono::milliseconds whole_limit(const TransferLimits& limits,
                                      std::uint64_t body_bytes) {
  if (!limits.grows)
    return limits.whole;
  return limits.whole + std::chrono::seconds(
                            std::min(body_bytes, limits.most_bytes) /
                            std::max<std::uint64_t>(limits.least_bytes_per_second, 1));
}

Bytes encode(const ToHelper& message) {
  return encode_message(message, kForms);
}

Bytes encode(const FromHelper& message) {
  return encode_message(message, kForms);
}

Result<ToHelper> decode_to_helper(ByteView frame) {
  return decode_message<ToHelper>(frame, kForms, "it is no request");
}

Result<FromHelper> decode_from_helper(ByteView frame) {
  return decode_message<FromHelper>(frame, kForms, "it is no reply");
}

}  // namespace kiln::remote
