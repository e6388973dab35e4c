#include "remote/transfer.h"

#include <array>

#include "codec/field_codec.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

enum class Kind : std::uint32_t {
  kRequest = 0x100,  // other numbers than the messages of compile/protocol
  kCancel,
  kHello,
  kReply,
};

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

template <typename Message, typename Description>
Bytes encode_as(Kind kind, const Message& message, const Description& description) {
  return encode_frame(static_cast<std::uint32_t>(kind),
                      fields_of(message, description));
}

Bytes encode_one(const TransferRequest& request) {
  return encode_as(Kind::kRequest, request, kRequestFields);
}
Bytes encode_one(const TransferCancel& cancel) {
  return encode_as(Kind::kCancel, cancel, kCancelFields);
}
Bytes encode_one(const HelperHello& hello) {
  return encode_as(Kind::kHello, hello, kHelloFields);
}
Bytes encode_one(const TransferReply& reply) {
  return encode_as(Kind::kReply, reply, kReplyFields);
}

template <typename Message, typename Description>
Result<Message> read_as(const Fields& fields, const Description& description) {
  return read_fields<Message>(fields, kMessageSubject, description);
}

}  // namespace

std::string_view to_string(TransferEnd end) {
  constexpr std::array<std::string_view, 7> kNames{
      "answered", "connect", "tls", "timeout", "too_large", "broken", "helper"};
  return kNames[static_cast<std::size_t>(end)];
}

Bytes encode(const ToHelper& message) {
  return std::visit([](const auto& held) { return encode_one(held); }, message);
}

Bytes encode(const FromHelper& message) {
  return std::visit([](const auto& held) { return encode_one(held); }, message);
}

Result<ToHelper> decode_to_helper(ByteView bytes) {
  const Frame message = KILN_TRY(decode_frame(bytes));
  switch (static_cast<Kind>(message.kind)) {
    case Kind::kRequest:
      return KILN_TRY(read_as<TransferRequest>(message.fields, kRequestFields));
    case Kind::kCancel:
      return KILN_TRY(read_as<TransferCancel>(message.fields, kCancelFields));
    default:
      return corrupt_message("it is no request");
  }
}

Result<FromHelper> decode_from_helper(ByteView bytes) {
  const Frame message = KILN_TRY(decode_frame(bytes));
  switch (static_cast<Kind>(message.kind)) {
    case Kind::kReply:
      return KILN_TRY(read_as<TransferReply>(message.fields, kReplyFields));
    case Kind::kHello:
      return KILN_TRY(read_as<HelperHello>(message.fields, kHelloFields));
    default:
      return corrupt_message("it is no reply");
  }
}

}  // namespace kiln::remote
