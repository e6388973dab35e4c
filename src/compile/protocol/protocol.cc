#include "compile/protocol/protocol.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <tuple>

#include "codec/message.h"
#include "util/try.h"

namespace kiln {

template <>
inline constexpr auto kLastEnumerator<device::ArchSuffix> = device::ArchSuffix::kF;
template <>
inline constexpr auto kLastEnumerator<device::ImageKind> = device::ImageKind::kLtoIr;
template <>
inline constexpr auto kLastEnumerator<compile::PrecompiledUse> =
    compile::PrecompiledUse::kRefused;
template <>
inline constexpr auto kLastEnumerator<compile::BuildPhase> =
    compile::BuildPhase::kReading;

}  // namespace kiln

namespace kiln::compile {
namespace {

constexpr auto kErrorFields = [](auto& codec, auto& error) {
  auto& [code, message, from_outside] = error;
  std::ignore = from_outside;  // the host's own word of a worker's end
  codec.enumerator("code", code, ErrorCode::kDevice);
  codec("message", message);
};

constexpr MessageForms kForms{
    message_form<CompileJob>(1),          message_form<DescribeRequest>(2),
    message_form<Hello>(3, kHelloFields), message_form<Progress>(4),
    message_form<CompileOutput>(5),       message_form<ToolchainDescription>(6),
    message_form<Error>(7, kErrorFields), message_form<PlanJob>(8),
    message_form<PlanOutput>(9),          message_form<LinkJob>(10),
    message_form<CudnnRequest>(11),       message_form<CudnnDescription>(12),
};

const std::filesystem::path& path_of(const std::filesystem::path& path) {
  return path;
}
const std::filesystem::path& path_of(const OpenedFile& file) {
  return file.path;
}

template <typename Files>
Result<void> check_size(const Files& files, std::string_view label) {
  std::size_t bytes = 0;
  for (const auto& each : files) bytes += path_of(each).native().size();
  if (files.size() > kMaxReportedFiles || bytes > kMaxReportedBytes)
    return corrupt_message(fmt::format("too many fields '{}'", label));
  return {};
}

}  // namespace

Bytes encode_request(const Request& request) {
  return encode_message(request, kForms);
}

Bytes encode_reply(const Reply& reply) {
  return encode_message(reply, kForms);
}

Result<Request> decode_request(ByteView frame) {
  return decode_message<Request>(frame, kForms, "it is no request");
}

Result<Reply> decode_reply(ByteView frame) {
  auto reply = KILN_TRY(decode_message<Reply>(frame, kForms, "it is no reply"));
  if (const auto* const output = std::get_if<CompileOutput>(&reply)) {
    KILN_TRY(check_size(output->files.opened, "opened file"));
    KILN_TRY(check_size(output->files.missed, "missed file"));
  }
  return reply;
}

}  // namespace kiln::compile
