// The framed messages between a pool and its worker. Both ends come from one build: the
// worker's first frame is its build id, and another one is refused. The decoder still
// treats every byte as hostile, because a compiler that ran wild wrote some of them.
//
// Frame: u32 magic, u32 kind, u64 payload bytes, u64 XXH3-64 of kind, length and
// payload, then the payload, a Fields encoding. Little-endian.

#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "compile/protocol/job.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::compile {

/// A worker finds its end of the socket here; it has no descriptor above.
inline constexpr int kWorkerSocket = 3;

inline constexpr std::size_t kFrameHeaderBytes = 24;
inline constexpr std::uint64_t kMaxPayloadBytes = 1ULL << 30U;

/// Open this NVRTC and say what it is.
struct DescribeRequest {
  NvrtcPaths nvrtc;
  friend bool operator==(const DescribeRequest&, const DescribeRequest&) = default;
};

using Request = std::variant<CompileJob, DescribeRequest, PlanJob>;

/// A worker's first words.
struct Hello {
  std::string build_id;
  friend bool operator==(const Hello&, const Hello&) = default;
};

/// Sent while a request runs, so that a timeout can say where it struck.
struct Progress {
  BuildPhase phase = BuildPhase::kQueued;
  friend bool operator==(const Progress&, const Progress&) = default;
};

/// A request is answered by any number of Progress and one CompileOutput, PlanOutput,
/// ToolchainDescription or Error.
using Reply = std::variant<Hello, Progress, CompileOutput, ToolchainDescription, Error,
                           PlanOutput>;

[[nodiscard]] Bytes encode_request(const Request& request);
[[nodiscard]] Bytes encode_reply(const Reply& reply);

/// Decode one whole frame. Errors: kCorrupt, naming what is wrong; never a crash.
/// Memory is bounded by a small multiple of the frame's own size, whatever its lengths
/// say.
[[nodiscard]] Result<Request> decode_request(ByteView frame);
[[nodiscard]] Result<Reply> decode_reply(ByteView frame);

/// How many bytes the frame has whose first kFrameHeaderBytes (or more) are `start`.
/// Errors: kCorrupt for a foreign magic or a payload over kMaxPayloadBytes.
[[nodiscard]] Result<std::uint64_t> frame_bytes(ByteView start);

}  // namespace kiln::compile
