// The framed messages between a pool and its worker. Both must come from one build: the
// worker's first frame is its build id, and a different id is refused. The
// decoder still treats every byte as hostile: a broken compiler may write some of them.
// codec/frame.h is what goes over the socket.

#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <variant>

#include "codec/frame.h"
#include "compile/protocol/job.h"
#include "compile/protocol/link_job.h"
#include "compile/protocol/plan_job.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln::compile {

/// See PoolOptions::scratch.
inline constexpr const char* kScratchName = "new";
/// In a worker's environment: that folder.
inline constexpr const char* kScratchVariable = "KILN_WORKER_SCRATCH";

/// The time limit of a DescribeRequest or CudnnRequest.
inline constexpr std::chrono::seconds kDescribeLimit{60};
/// Behind "--parent <pid>": the worker is to look at a mount; the mount and a place on
/// it follow.
inline constexpr std::string_view kProbeArgument = "--probe";

/// Opens an NVRTC and asks for its version and architectures.
struct DescribeRequest {
  NvrtcPaths nvrtc;
  friend bool operator==(const DescribeRequest&, const DescribeRequest&) = default;
};

using Request =
    std::variant<CompileJob, DescribeRequest, PlanJob, LinkJob, CudnnRequest>;

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
/// PlanOutput, ToolchainDescription, CudnnDescription or Error.
using Reply = std::variant<Hello, Progress, CompileOutput, ToolchainDescription, Error,
                           PlanOutput, CudnnDescription>;

[[nodiscard]] Bytes encode_request(const Request& request);
[[nodiscard]] Bytes encode_reply(const Reply& reply);

/// Decodes one whole frame. Errors: kCorrupt, as decode_frame().
[[nodiscard]] Result<Request> decode_request(ByteView frame);
[[nodiscard]] Result<Reply> decode_reply(ByteView frame);

}  // namespace kiln::compile
