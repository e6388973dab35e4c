// The framed messages between a pool and its worker. Both must come from one build: the
// worker's first frame is its build id, and a different id is refused. The decoder
// still treats every byte as hostile: a broken compiler may write some of them.
//
// Frame: u32 magic, u32 kind, u64 payload bytes, u64 XXH3-64 of kind, length and
// payload, then the payload, a Fields encoding. Little-endian.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

#include "compile/protocol/job.h"
#include "compile/protocol/link_job.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::compile {

/// The descriptor of the worker's end of the socket; the worker inherits none above it.
inline constexpr int kWorkerSocket = 3;

/// See PoolOptions::scratch.
inline constexpr const char* kScratchName = "new";
/// In a worker's environment: that folder.
inline constexpr const char* kScratchVariable = "KILN_WORKER_SCRATCH";

/// The exit statuses of a worker that ended itself because it was over a limit.
inline constexpr int kExitOverTime = 81;
inline constexpr int kExitOverMemory = 82;

inline constexpr std::size_t kFrameHeaderBytes = 24;
inline constexpr std::uint64_t kMaxPayloadBytes = 1ULL << 30U;

/// The time limit of a DescribeRequest.
inline constexpr std::chrono::seconds kDescribeLimit{60};

/// Opens an NVRTC and asks for its version and architectures.
struct DescribeRequest {
  NvrtcPaths nvrtc;
  friend bool operator==(const DescribeRequest&, const DescribeRequest&) = default;
};

using Request = std::variant<CompileJob, DescribeRequest, PlanJob, LinkJob>;

/// The first message of a worker.
struct Hello {
  std::string build_id;
  friend bool operator==(const Hello&, const Hello&) = default;
};

/// Sent while a request runs, so that a timeout error can name the phase.
struct Progress {
  BuildPhase phase = BuildPhase::kQueued;
  friend bool operator==(const Progress&, const Progress&) = default;
};

/// A worker answers a request with any number of Progress, then one CompileOutput,
/// PlanOutput, ToolchainDescription or Error.
using Reply = std::variant<Hello, Progress, CompileOutput, ToolchainDescription, Error,
                           PlanOutput>;

[[nodiscard]] Bytes encode_request(const Request& request);
[[nodiscard]] Bytes encode_reply(const Reply& reply);

/// Decodes one whole frame. Errors: kCorrupt, naming the fault; never a crash. Memory
/// is bounded by a small multiple of the frame's own size, whatever its length fields
/// say.
[[nodiscard]] Result<Request> decode_request(ByteView frame);
[[nodiscard]] Result<Reply> decode_reply(ByteView frame);

/// The size in bytes of the frame that begins with `start` (kFrameHeaderBytes or more).
/// Errors: kCorrupt for a wrong magic or a payload over kMaxPayloadBytes.
[[nodiscard]] Result<std::uint64_t> frame_bytes(ByteView start);

}  // namespace kiln::compile
