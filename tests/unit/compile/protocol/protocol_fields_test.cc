// Messages whose frame is whole and whose fields are not: a compiler that ran wild
// wrote them.

#include <type_traits>
#include <utility>

#include "codec/frame.h"
#include "compile/protocol/protocol.h"
#include "tests/support/test.h"
#include "util/little_endian.h"

namespace kiln::compile {
namespace {

template <typename Message>
constexpr bool kIsRequest = std::is_constructible_v<Request, Message>;

template <typename Message>
Frame frame_of(const Message& message) {
  if constexpr (kIsRequest<Message>)
    return decode_frame(encode_request(Request(message))).value();
  else
    return decode_frame(encode_reply(Reply(message))).value();
}

template <typename Message>
Fields to_fields(const Message& message) {
  return frame_of(message).fields;
}

/// Of a frame with these fields.
template <typename Message>
Result<Message> read(const Fields& fields) {
  const Bytes frame = encode_frame(frame_of(Message{}).kind, fields);
  const auto held = [](auto&& any) { return std::get<Message>(std::move(any)); };
  if constexpr (kIsRequest<Message>)
    return decode_request(frame).map(held);
  else
    return decode_reply(frame).map(held);
}

/// With the first field of that label as `value`; without it, where there is none.
Fields with(const Fields& fields, std::string_view label,
            const std::optional<std::string>& value) {
  Fields changed;
  bool is_done = false;
  for (const Field& field : fields.list()) {
    const bool is_meant = !is_done && field.label == label;
    is_done = is_done || is_meant;
    if (!is_meant)
      changed.add(field.label, field.value);
    else if (value)
      changed.add(label, *value);
  }
  EXPECT_TRUE(is_done) << label;
  return changed;
}

/// What a decoder says of them: kCorrupt and a message, or nothing.
template <typename T>
std::string wrong_with(const Result<T>& decoded) {
  if (decoded)
    return "nothing";
  EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  return decoded.error().message;
}

PlanOutput some_plan() {
  PlanOutput output;
  output.plan = Bytes(3, std::byte{0});
  output.attempts = {{"engine 2", "CUDNN_STATUS_NOT_SUPPORTED", ""}};
  output.cudnn_version = "9.19.0";
  output.build_time = std::chrono::milliseconds(-1);
  return output;
}

TEST(ProtocolFields, OfEveryMessageAreAllNeeded) {
  const auto check = []<typename Message>(const Message& message) {
    const Fields whole = to_fields(message);
    ASSERT_EQ(wrong_with(read<Message>(whole)), "nothing");
    for (const Field& field : whole.list())
      EXPECT_THAT(wrong_with(read<Message>(with(whole, field.label, std::nullopt))),
                  HasSubstr("'" + field.label + "'"));
  };
  check(CompileJob{});
  check(CompileOutput{});
  check(ToolchainDescription{});
  check(DescribeRequest{});
  check(Hello{});
  check(Progress{});
  check(Error{});
  check(PlanJob{});
  check(PlanOutput{});
  check(LinkJob{});
  check(CudnnRequest{});
  check(CudnnDescription{});
}

TEST(ProtocolFields, OfAPlanComeBackAsTheyWere) {
  EXPECT_EQ(read<PlanOutput>(to_fields(some_plan())).value(), some_plan());
  const PlanJob job{.label = "l",
                    .flags = "--f",
                    .problem = std::string("\0p", 2),
                    .device = "{}",
                    .capability = {10, 3},
                    .cudnn = "/x/libcudnn.so.9",
                    .nvrtc = {"/x/n", "/x/b"},
                    .time_limit = std::chrono::milliseconds(7),
                    .memory_limit_bytes = ~std::uint64_t{0}};
  EXPECT_EQ(read<PlanJob>(to_fields(job)).value(), job);
}

// A field's label is its place in the struct.

TEST(ProtocolFields, ThatAreEnumeratorsHaveNoOthers) {
  const Fields job = to_fields(CompileJob{});
  const auto with_target = [&](std::string_view label, const char* value) {
    const auto inner = Fields::decode(as_bytes(job.find("10").value())).value();
    return with(job, "10", std::string(as_text(with(inner, label, value).encode())));
  };
  EXPECT_EQ(wrong_with(read<CompileJob>(with_target("2", "1"))), "nothing");
  EXPECT_THAT(wrong_with(read<CompileJob>(with_target("2", "9"))),
              HasSubstr("field '2' has no value 9"));
  const Fields progress = to_fields(Progress{BuildPhase::kReading});
  EXPECT_EQ(wrong_with(read<Progress>(progress)), "nothing");
  EXPECT_EQ(wrong_with(read<Progress>(with(progress, "1", "5"))),
            "worker message: field '1' has no value 5");
  const Fields error = to_fields(Error{ErrorCode::kDevice, ""});
  EXPECT_EQ(wrong_with(read<Error>(error)), "nothing");
  const auto beyond = std::to_string(static_cast<unsigned>(ErrorCode::kDevice) + 1);
  EXPECT_THAT(wrong_with(read<Error>(with(error, "code", beyond))),
              HasSubstr("no value " + beyond));
}

TEST(ProtocolFields, ThatAreNumbersFitTheirType) {
  const Fields job = to_fields(PlanJob{});
  for (const char* const text :
       {"", "x", "1 ", " 1", "+1", "0x1", "-1", "18446744073709551616"})
    EXPECT_EQ(wrong_with(read<PlanJob>(with(job, "9", text))),
              "worker message: field '9' is no number that fits")
        << text;
}

TEST(ProtocolFields, OfALibraryAreThereOnce) {
  Fields plan = to_fields(some_plan());
  plan.add("4", std::string(plan.find("4").value()));
  EXPECT_EQ(wrong_with(read<PlanOutput>(plan)),
            "worker message: field '4' must be there once");
}

TEST(ProtocolFields, OfWhatIsNestedAreCheckedToo) {
  const Fields plan = to_fields(some_plan());
  EXPECT_NE(wrong_with(read<PlanOutput>(with(plan, "2", "no fields"))), "nothing");
  Fields attempt;
  attempt.add("1", "engine 2");
  attempt.add("3", "");
  EXPECT_EQ(wrong_with(read<PlanOutput>(
                with(plan, "2", std::string(as_text(attempt.encode()))))),
            "worker message: field '2' is missing");
}

TEST(FrameHeader, AllowsPayloadsUpToTheLimit) {
  const auto header = [](std::uint64_t payload) {
    Bytes bytes = encode_reply(Hello{});
    bytes.resize(8);
    append_le(bytes, payload);
    append_le(bytes, std::uint64_t{0});
    return bytes;
  };
  EXPECT_EQ(frame_bytes(header(kMaxPayloadBytes)).value(),
            kFrameHeaderBytes + kMaxPayloadBytes);
  EXPECT_EQ(wrong_with(frame_bytes(header(kMaxPayloadBytes + 1))),
            "worker message: a payload of 1073741825 bytes is over the limit");
}

TEST(FrameHeader, BeginsAsOneAndIsWhole) {
  Bytes bytes = encode_reply(Hello{});
  EXPECT_EQ(wrong_with(frame_bytes(ByteView(bytes).first(kFrameHeaderBytes - 1))),
            "worker message: 23 bytes are no frame");
  bytes[0] ^= std::byte{1};
  EXPECT_EQ(wrong_with(frame_bytes(bytes)),
            "worker message: it does not begin as a frame");
}

}  // namespace
}  // namespace kiln::compile
