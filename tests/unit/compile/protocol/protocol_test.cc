#include "compile/protocol/protocol.h"

#include <gtest/gtest.h>

#include "util/little_endian.h"

namespace kiln::compile {
namespace {

CompileJob full_job() {
  return {.label = "scale",
          .source = std::string("__global__ void k() {}\n"),
          .program_name = "k.cu",
          .working_directory = "/y",
          .options = {"--gpu-architecture=sm_90a", "-DA", "-DB"},
          .as_nvrtc = true,
          .name_expressions = {"k<float>", "k<int>"},
          .headers = {{"a.h", "int a;"}, {"sub/b.h", ""}},
          .nvrtc = {"/x/libnvrtc.so", "/x/libnvrtc-builtins.so"},
          .target = {{{9, 0}, device::ArchSuffix::kA}, device::ImageKind::kCubin},
          .time_limit = std::chrono::milliseconds(1234),
          .memory_limit_bytes = 5ULL << 32U};
}

CompileOutput full_output() {
  CompileOutput output;
  output.image = Bytes(300, std::byte{0xAB});
  output.ptx = ".target sm_90a";
  output.log = std::string("with a NUL \0 inside", 19);
  output.lowered_names = {{"k<float>", "_Z1kIfEvv"}};
  output.resources = {{.entry = "k",
                       .registers = 1,
                       .static_shared_bytes = 2,
                       .stack_bytes = 3,
                       .spill_store_bytes = 4,
                       .spill_load_bytes = 5}};
  output.files = {{{"/usr/include/a.h", FileStamp{1, 2, 3, -4, 5, true}},
                   {"/usr/include/b.h", FileStamp{~0ULL, 7, 8, 9, -10, false}}},
                  {"/x/a.h"},
                  false};
  output.nvrtc = {"/x/libnvrtc.so", "0a0b"};
  output.builtins = {"/x/libnvrtc-builtins.so", "0c0d"};
  output.nvrtc_time = std::chrono::milliseconds(17);
  return output;
}

PlanJob full_plan_job() {
  return {.label = "attention fwd",
          .flags = "--pass fwd",
          .problem = std::string("\0fields", 7),
          .device = "{}",
          .capability = {9, 0},
          .cudnn = "/x/libcudnn.so.9",
          .nvrtc = {"/x/libnvrtc.so", "/x/libnvrtc-builtins.so"},
          .time_limit = std::chrono::milliseconds(1234),
          .memory_limit_bytes = 5ULL << 32U};
}

LinkJob full_link_job() {
  return {.label = "a.cu and 1 more",
          .linker = "/x/libnvJitLink.so.13",
          .options = {"-arch=sm_90a", "-lto"},
          .inputs = {{"a.cu", Bytes(9, std::byte{1})}, {"b.cu", {}}},
          .device_runtime = Bytes(7, std::byte{0}),
          .target = {{{9, 0}, device::ArchSuffix::kA}, device::ImageKind::kLtoIr},
          .cuda_version = 13010,
          .time_limit = std::chrono::milliseconds(1234),
          .memory_limit_bytes = 5ULL << 32U};
}

PlanOutput full_plan_output() {
  PlanOutput output;
  output.plan = Bytes(300, std::byte{0xAB});
  output.attempts = {{"engine 2", "CUDNN_STATUS_NOT_SUPPORTED", "why"},
                     {"engine 3", "", ""}};
  output.cudnn_version = "9.19.0";
  output.cudnn = {"/x/libcudnn.so.9", "0e0f"};
  output.nvrtc = {"/x/libnvrtc.so", "0a0b"};
  output.build_time = std::chrono::milliseconds(17);
  return output;
}

std::vector<Reply> every_reply() {
  return {Hello{"abc"},
          full_plan_output(),
          PlanOutput{},
          Progress{BuildPhase::kCompiling},
          full_output(),
          CompileOutput{},
          ToolchainDescription{13, 0, {{7, 5}, {12, 1}}, {"/x/libnvrtc.so", "0a0b"}},
          CudnnDescription{"9.19.0", {"/x/libcudnn.so.9", "0e"}, {"/x/graph", "0f"}},
          Error{ErrorCode::kCompileFailed, "the whole log"}};
}

bool same(const Reply& a, const Reply& b) {
  const auto* const error = std::get_if<Error>(&a);
  if (error == nullptr)
    return encode_reply(a) == encode_reply(b) && a.index() == b.index();
  const auto* const other = std::get_if<Error>(&b);
  return other != nullptr && error->code == other->code &&
         error->message == other->message;
}

TEST(Protocol, RequestsArriveAsTheyWereSent) {
  for (const Request& request :
       {Request(full_job()), Request(CompileJob{}), Request(full_plan_job()),
        Request(full_link_job()), Request(LinkJob{}), Request(PlanJob{}),
        Request(DescribeRequest{{"/a", "/b"}}),
        Request(CudnnRequest{
            "/x/libcudnn.so.9", {"/y/libcudnn_graph.so.9"}, {"f", "g"}})}) {
    const auto decoded = decode_request(encode_request(request));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, request);
  }
}

TEST(Protocol, RepliesArriveAsTheyWereSent) {
  for (const auto& reply : every_reply()) {
    const auto decoded = decode_reply(encode_reply(reply));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_TRUE(same(reply, *decoded)) << reply.index();
  }
  const auto output = decode_reply(encode_reply(full_output()));
  ASSERT_TRUE(output);
  EXPECT_EQ(std::get<CompileOutput>(*output), full_output());
}

TEST(Protocol, EveryTruncationIsRejected) {
  const Bytes request = encode_request(full_job());
  for (std::size_t size = 0; size < request.size(); ++size) {
    const auto decoded = decode_request(ByteView(request).first(size));
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
  }
  for (const auto& reply : every_reply()) {
    const Bytes frame = encode_reply(reply);
    for (std::size_t size = 0; size < frame.size(); ++size)
      ASSERT_FALSE(decode_reply(ByteView(frame).first(size))) << size;
  }
}

TEST(Protocol, EveryFlippedBitIsRejected) {
  const auto check = [](Bytes frame, const auto& decode) {
    for (std::size_t i = 0; i < frame.size() * 8; ++i) {
      const auto bit = std::byte{1} << static_cast<int>(i % 8);
      frame[i / 8] ^= bit;
      ASSERT_FALSE(decode(frame)) << "bit " << i;
      frame[i / 8] ^= bit;
    }
  };
  check(encode_request(full_job()), decode_request);
  for (const auto& reply : every_reply()) check(encode_reply(reply), decode_reply);
}

TEST(Protocol, AReportOfMoreFilesThanAWorkerSendsIsRejected) {
  CompileOutput output = full_output();
  output.files.missed.assign(kMaxReportedFiles, "/x");
  EXPECT_TRUE(decode_reply(encode_reply(output)));
  output.files.missed.emplace_back("/x");
  EXPECT_FALSE(decode_reply(encode_reply(output)));
  output.files.missed.assign(1, std::string(kMaxReportedBytes + 1, 'x'));
  EXPECT_FALSE(decode_reply(encode_reply(output)));
}

TEST(Protocol, TrailingBytesAreRejected) {
  Bytes frame = encode_request(full_job());
  frame.push_back(std::byte{0});
  EXPECT_FALSE(decode_request(frame));
}

TEST(Protocol, ARequestIsNoReply) {
  EXPECT_FALSE(decode_reply(encode_request(full_job())));
  EXPECT_FALSE(decode_request(encode_reply(full_output())));
}

TEST(Protocol, AHugeLengthIsRefusedBeforeAnythingIsAllocated) {
  Bytes header = encode_reply(Hello{"x"});
  header.resize(kFrameHeaderBytes);
  for (std::size_t i = 8; i < 16; ++i) header[i] = std::byte{0xFF};
  EXPECT_FALSE(frame_bytes(header));
}

TEST(Protocol, TheHeaderTellsTheSizeOfTheFrame) {
  const Bytes frame = encode_request(full_job());
  EXPECT_EQ(frame_bytes(ByteView(frame).first(kFrameHeaderBytes)).value(),
            frame.size());
}

}  // namespace
}  // namespace kiln::compile
