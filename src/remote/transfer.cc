#include "remote/transfer.h"

#include <array>

#include "codec/message.h"

namespace kiln::remote {
namespace {

constexpr auto kRequestFields = [](auto& codec, auto& request) {
  auto& [id, method, url, credentials, limits, body, replaces] = request;
  auto& [authorization, aws_region, user, aws_token, ca_bundle, certificate, key] =
      credentials;
  auto& [connect, whole, least, slow_for, most] = limits;
  codec("id", id);
  codec.enumerator("method", method, Method::kPut);
  codec("url", url);
  codec("authorization", authorization);
  codec("aws region", aws_region);
  codec("user", user);
  codec("aws token", aws_token);
  codec("ca bundle", ca_bundle);
  codec("certificate", certificate);
  codec("certificate key", key);
  codec("connect ms", connect);
  codec("whole ms", whole);
  codec("least bytes per second", least);
  codec("slow for s", slow_for);
  codec("most bytes", most);
  codec("body", body);
  codec("replaces", replaces);
};

constexpr auto kCancelFields = [](auto& codec, auto& cancel) {
  auto& [id] = cancel;
  codec("id", id);
};

constexpr auto kHelloFields = [](auto& codec, auto& hello) {
  auto& [build_id] = hello;
  codec("build id", build_id);
};

constexpr auto kReplyFields = [](auto& codec, auto& reply) {
  auto& [id, end, status, retry_after_s, error, times, server_time, body] = reply;
  auto& [name, connect, tls, first_byte, whole] = times;
  codec("id", id);
  codec.enumerator("end", end, TransferEnd::kBroken);
  codec("status", status);
  codec("retry after s", retry_after_s);
  codec("error", error);
  codec("name us", name);
  codec("connect us", connect);
  codec("tls us", tls);
  codec("first byte us", first_byte);
  codec("whole us", whole);
  codec("server time", server_time);
  codec("body", body);
};

// Other kinds than those of compile/protocol.
constexpr MessageForms kForms{
    message_form<TransferRequest>(0x100, kRequestFields),
    message_form<TransferCancel>(0x101, kCancelFields),
    message_form<HelperHello>(0x102, kHelloFields),
    message_form<TransferReply>(0x103, kReplyFields),
};

}  // namespace

std::string_view to_string(TransferEnd end) {
  constexpr std::array<std::string_view, 7> kNames{
      "answered", "connect", "tls", "timeout", "too_large", "broken", "helper"};
  return kNames[static_cast<std::size_t>(end)];
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
