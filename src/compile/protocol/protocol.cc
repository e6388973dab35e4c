#include "compile/protocol/protocol.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <type_traits>

#include "compile/protocol/link_fields.h"
#include "compile/protocol/plan_fields.h"
#include "compile/protocol/protocol_fields.h"
#include "compile/protocol/protocol_parts.h"
#include "util/little_endian.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

constexpr std::uint32_t kMagic = 0x574E4C4BU;  // "KLNW"

enum class Kind : std::uint32_t {
  kCompileJob = 1,
  kDescribeRequest,
  kHello,
  kProgress,
  kCompileOutput,
  kDescription,
  kError,
  kPlanJob,
  kPlanOutput,
  kLinkJob,
};

std::uint64_t checksum(std::uint32_t kind, ByteView payload) {
  // The kind seeds the hash; the length is part of it already.
  return XXH3_64bits_withSeed(payload.data(), payload.size(), kind);
}

Bytes frame(Kind kind, const Fields& fields) {
  const Bytes payload = fields.encode();
  const auto raw_kind = static_cast<std::uint32_t>(kind);
  Bytes out;
  out.reserve(kFrameHeaderBytes + payload.size());
  append_le(out, kMagic);
  append_le(out, raw_kind);
  append_le(out, static_cast<std::uint64_t>(payload.size()));
  append_le(out, checksum(raw_kind, payload));
  append(out, payload);
  return out;
}

struct Frame {
  Kind kind;
  Fields fields;
};

Result<Frame> open_frame(ByteView bytes) {
  const auto size = KILN_TRY(frame_bytes(bytes));
  if (size != bytes.size()) {
    return corrupt_message(
        fmt::format("{} bytes, its header says {}", bytes.size(), size));
  }
  const auto kind = load_le<std::uint32_t>(bytes, 4);
  const auto payload = bytes.subspan(kFrameHeaderBytes);
  if (checksum(kind, payload) != load_le<std::uint64_t>(bytes, 16))
    return corrupt_message("its checksum does not fit");
  return Frame{static_cast<Kind>(kind), KILN_TRY(Fields::decode(payload))};
}

template <typename Message>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<Message, CompileJob>)
    return Kind::kCompileJob;
  else if constexpr (std::is_same_v<Message, DescribeRequest>)
    return Kind::kDescribeRequest;
  else if constexpr (std::is_same_v<Message, Hello>)
    return Kind::kHello;
  else if constexpr (std::is_same_v<Message, Progress>)
    return Kind::kProgress;
  else if constexpr (std::is_same_v<Message, CompileOutput>)
    return Kind::kCompileOutput;
  else if constexpr (std::is_same_v<Message, ToolchainDescription>)
    return Kind::kDescription;
  else if constexpr (std::is_same_v<Message, PlanJob>)
    return Kind::kPlanJob;
  else if constexpr (std::is_same_v<Message, LinkJob>)
    return Kind::kLinkJob;
  else if constexpr (std::is_same_v<Message, PlanOutput>)
    return Kind::kPlanOutput;
  else
    return Kind::kError;
}

template <typename... Messages>
Bytes encode(const std::variant<Messages...>& message) {
  return std::visit(
      [](const auto& held) {
        return frame(kind_of<std::remove_cvref_t<decltype(held)>>(), to_fields(held));
      },
      message);
}

template <typename Any, typename T>
Result<Any> widened(Result<T> message) {
  return std::move(message).map([](T&& value) { return Any(std::move(value)); });
}

}  // namespace

Bytes encode_request(const Request& request) {
  return encode(request);
}

Bytes encode_reply(const Reply& reply) {
  return encode(reply);
}

Result<std::uint64_t> frame_bytes(ByteView start) {
  if (start.size() < kFrameHeaderBytes)
    return corrupt_message(fmt::format("{} bytes are no frame", start.size()));
  if (load_le<std::uint32_t>(start, 0) != kMagic)
    return corrupt_message("it does not begin as one");
  const auto payload = load_le<std::uint64_t>(start, 8);
  if (payload > kMaxPayloadBytes)
    return corrupt_message(
        fmt::format("a payload of {} bytes is over the limit", payload));
  return kFrameHeaderBytes + payload;
}

Result<Request> decode_request(ByteView bytes) {
  const auto [kind, fields] = KILN_TRY(open_frame(bytes));
  switch (kind) {
    case Kind::kCompileJob:
      return widened<Request>(job_from(fields));
    case Kind::kDescribeRequest:
      return widened<Request>(describe_request_from(fields));
    case Kind::kPlanJob:
      return widened<Request>(plan_job_from(fields));
    case Kind::kLinkJob:
      return widened<Request>(link_job_from(fields));
    default:
      return corrupt_message("it is no request");
  }
}

Result<Reply> decode_reply(ByteView bytes) {
  const auto [kind, fields] = KILN_TRY(open_frame(bytes));
  switch (kind) {
    case Kind::kHello:
      return widened<Reply>(hello_from(fields));
    case Kind::kProgress:
      return widened<Reply>(progress_from(fields));
    case Kind::kCompileOutput:
      return widened<Reply>(output_from(fields));
    case Kind::kDescription:
      return widened<Reply>(description_from(fields));
    case Kind::kError:
      return widened<Reply>(error_from(fields));
    case Kind::kPlanOutput:
      return widened<Reply>(plan_output_from(fields));
    default:
      return corrupt_message("it is no reply");
  }
}

}  // namespace kiln::compile
