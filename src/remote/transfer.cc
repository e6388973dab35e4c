#include "remote/transfer.h"

#include <array>

#include "codec/field_decoder.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

enum class Kind : std::uint32_t {
  kRequest = 0x100,  // other numbers than the messages of compile/protocol
  kCancel,
  kHello,
  kReply,
};

Bytes frame(Kind kind, const Fields& fields) {
  return encode_frame(static_cast<std::uint32_t>(kind), fields);
}

Bytes encode_one(const TransferRequest& request) {
  const auto& [id, method, url, credentials, limits, body, replaces] = request;
  const auto& [authorization, aws_region, user, aws_token, ca_bundle, certificate,
               key] = credentials;
  const auto& [connect, whole, least, slow_for, most] = limits;
  Fields fields;
  add_number(fields, "id", id);
  add_number(fields, "method", static_cast<unsigned>(method));
  fields.add("url", url);
  fields.add("authorization", authorization);
  fields.add("aws region", aws_region);
  fields.add("user", user);
  fields.add("aws token", aws_token);
  fields.add("ca bundle", ca_bundle);
  fields.add("certificate", certificate);
  fields.add("certificate key", key);
  add_number(fields, "connect ms", connect.count());
  add_number(fields, "whole ms", whole.count());
  add_number(fields, "least bytes per second", least);
  add_number(fields, "slow for s", slow_for.count());
  add_number(fields, "most bytes", most);
  fields.add("body", body);
  add_number(fields, "replaces", replaces ? 1 : 0);
  return frame(Kind::kRequest, fields);
}

Bytes encode_one(const TransferCancel& cancel) {
  Fields fields;
  add_number(fields, "id", cancel.id);
  return frame(Kind::kCancel, fields);
}

Bytes encode_one(const HelperHello& hello) {
  Fields fields;
  fields.add("build id", hello.build_id);
  return frame(Kind::kHello, fields);
}

Bytes encode_one(const TransferReply& reply) {
  const auto& [id, end, status, retry_after_s, error, times, server_time, body] = reply;
  const auto& [name, connect, tls, first_byte, whole] = times;
  Fields fields;
  add_number(fields, "id", id);
  add_number(fields, "end", static_cast<unsigned>(end));
  add_number(fields, "status", status);
  if (retry_after_s)
    add_number(fields, "retry after s", *retry_after_s);
  fields.add("error", error);
  add_number(fields, "name us", name.count());
  add_number(fields, "connect us", connect.count());
  add_number(fields, "tls us", tls.count());
  add_number(fields, "first byte us", first_byte.count());
  add_number(fields, "whole us", whole.count());
  add_number(fields, "server time", server_time);
  fields.add("body", body);
  return frame(Kind::kReply, fields);
}

Result<ToHelper> request_from(const Fields& fields) {
  FieldDecoder reader(fields, kMessageSubject);
  TransferRequest request;
  request.id = reader.number<std::uint64_t>("id");
  request.method = reader.one_of("method", Method::kPut);
  request.url = reader.text("url");
  request.credentials = {.authorization = reader.text("authorization"),
                         .aws_region = reader.text("aws region"),
                         .user = reader.text("user"),
                         .aws_token = reader.text("aws token"),
                         .ca_bundle = reader.text("ca bundle"),
                         .certificate = reader.text("certificate"),
                         .certificate_key = reader.text("certificate key")};
  request.limits = {
      .connect = std::chrono::milliseconds(reader.number<std::int64_t>("connect ms")),
      .whole = std::chrono::milliseconds(reader.number<std::int64_t>("whole ms")),
      .least_bytes_per_second = reader.number<std::uint64_t>("least bytes per second"),
      .slow_for = std::chrono::seconds(reader.number<std::int64_t>("slow for s")),
      .most_bytes = reader.number<std::uint64_t>("most bytes")};
  request.body = reader.text("body");
  request.replaces = reader.number<std::uint32_t>("replaces") != 0;
  return reader.finish(ToHelper(std::move(request)));
}

Result<FromHelper> reply_from(const Fields& fields) {
  FieldDecoder reader(fields, kMessageSubject);
  TransferReply reply;
  reply.id = reader.number<std::uint64_t>("id");
  reply.end = reader.one_of("end", TransferEnd::kBroken);
  reply.status = reader.number<std::uint32_t>("status");
  const auto rest = reader.numbers<std::uint32_t>("retry after s");
  if (!rest.empty())
    reply.retry_after_s = rest.front();
  reply.error = reader.text("error");
  const auto time = [&](const char* label) {
    return std::chrono::microseconds(reader.number<std::int64_t>(label));
  };
  reply.times = {.name = time("name us"),
                 .connect = time("connect us"),
                 .tls = time("tls us"),
                 .first_byte = time("first byte us"),
                 .whole = time("whole us")};
  reply.server_time = reader.number<std::int64_t>("server time");
  reply.body = reader.text("body");
  return reader.finish(FromHelper(std::move(reply)));
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
  if (static_cast<Kind>(message.kind) == Kind::kRequest)
    return request_from(message.fields);
  if (static_cast<Kind>(message.kind) != Kind::kCancel)
    return corrupt_message("it is no request");
  FieldDecoder reader(message.fields, kMessageSubject);
  return reader.finish(ToHelper(TransferCancel{reader.number<std::uint64_t>("id")}));
}

Result<FromHelper> decode_from_helper(ByteView bytes) {
  const Frame message = KILN_TRY(decode_frame(bytes));
  if (static_cast<Kind>(message.kind) == Kind::kReply)
    return reply_from(message.fields);
  if (static_cast<Kind>(message.kind) != Kind::kHello)
    return corrupt_message("it is no reply");
  FieldDecoder reader(message.fields, kMessageSubject);
  return reader.finish(FromHelper(HelperHello{reader.text("build id")}));
}

}  // namespace kiln::remote
