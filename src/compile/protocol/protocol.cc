#include "compile/protocol/protocol.h"

#include <type_traits>

#include "compile/protocol/link_fields.h"
#include "compile/protocol/plan_fields.h"
#include "compile/protocol/protocol_fields.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

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
  kCudnnRequest,
  kCudnnDescription,
};

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
  else if constexpr (std::is_same_v<Message, CudnnRequest>)
    return Kind::kCudnnRequest;
  else if constexpr (std::is_same_v<Message, CudnnDescription>)
    return Kind::kCudnnDescription;
  else
    return Kind::kError;
}

template <typename... Messages>
Bytes encode(const std::variant<Messages...>& message) {
  return std::visit(
      [](const auto& held) {
        constexpr Kind kKind = kind_of<std::remove_cvref_t<decltype(held)>>();
        return encode_frame(static_cast<std::uint32_t>(kKind), to_fields(held));
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

Result<Request> decode_request(ByteView bytes) {
  const auto [kind, fields] = KILN_TRY(decode_frame(bytes));
  switch (static_cast<Kind>(kind)) {
    case Kind::kCompileJob:
      return widened<Request>(job_from(fields));
    case Kind::kDescribeRequest:
      return widened<Request>(describe_request_from(fields));
    case Kind::kPlanJob:
      return widened<Request>(plan_job_from(fields));
    case Kind::kLinkJob:
      return widened<Request>(link_job_from(fields));
    case Kind::kCudnnRequest:
      return widened<Request>(cudnn_request_from(fields));
    default:
      return corrupt_message("it is no request");
  }
}

Result<Reply> decode_reply(ByteView bytes) {
  const auto [kind, fields] = KILN_TRY(decode_frame(bytes));
  switch (static_cast<Kind>(kind)) {
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
    case Kind::kCudnnDescription:
      return widened<Reply>(cudnn_description_from(fields));
    default:
      return corrupt_message("it is no reply");
  }
}

}  // namespace kiln::compile
