// A plan worker's job and its output: a cuDNN execution plan, for a device that need
// not be present. Plain values, as in job.h.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "compile/protocol/job.h"
#include "device/architecture.h"
#include "util/bytes.h"

namespace kiln::compile {

struct PlanJob {
  /// What messages call this build: the problem in words.
  std::string label = {};
  std::string flags = {};    // of `kiln attention`, for a reproduction
  std::string problem = {};  // encoded by attention::encode()
  std::string device = {};   // cuDNN's 23 device properties, JSON
  device::ComputeCapability capability = {};
  std::filesystem::path cudnn = {};  // libcudnn.so.9, absolute
  /// The NVRTC for cuDNN. Opened before cuDNN, which searches for one by name alone.
  NvrtcPaths nvrtc = {};
  /// As CompileJob's. Zero: the pool's default.
  std::chrono::milliseconds time_limit{0};
  std::uint64_t memory_limit_bytes = 0;
  friend bool operator==(const PlanJob&, const PlanJob&) = default;
};

/// The outcome of one attempt to run the problem: an engine with its choices, or a step
/// before there is any engine.
struct PlanAttempt {
  std::string what;     // "frontend", "heuristics A", "engine 2"
  std::string status;   // cuDNN's status name, "CUDNN_STATUS_SUCCESS"
  std::string message;  // cuDNN's or the frontend's own; may be empty
  friend bool operator==(const PlanAttempt&, const PlanAttempt&) = default;
};

/// A refusal is an answer, not an error: `plan` is empty then.
struct PlanOutput {
  Bytes plan;                         // encoded by attention::encode()
  std::vector<PlanAttempt> attempts;  // in order; the last one made the plan, if any
  std::string cudnn_version;          // "9.19.0", as the library said
  LoadedLibrary cudnn;
  LoadedLibrary nvrtc;                      // the job's, if it is loaded; else empty
  std::chrono::milliseconds build_time{0};  // inside cuDNN
  friend bool operator==(const PlanOutput&, const PlanOutput&) = default;
};

/// Asks a plan worker to be the first that calls a cuDNN, which ends the process where
/// it lacks a part of its own.
struct CudnnRequest {
  std::filesystem::path cudnn = {};  // libcudnn.so.9, absolute
  /// Parts of a cuDNN that the caller's process has loaded, absolute. They are opened
  /// first, so that cuDNN finds them here as it will there.
  std::vector<std::string> loaded = {};
  std::vector<std::string> functions = {};  // that the caller will call
  friend bool operator==(const CudnnRequest&, const CudnnRequest&) = default;
};

/// The answer.
struct CudnnDescription {
  std::string version;  // "9.19.0", as the library said
  LoadedLibrary cudnn;
  LoadedLibrary graph;  // the libcudnn_graph that it uses; empty: it has none
  friend bool operator==(const CudnnDescription&, const CudnnDescription&) = default;
};

}  // namespace kiln::compile
