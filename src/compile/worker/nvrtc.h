// The table of NVRTC's entry points, opened from one absolute path, and the one place
// that turns an nvrtcResult into an Error. Used in the worker; the service never opens
// NVRTC in its own process.

#pragma once

#include <nvrtc.h>

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "compile/protocol/job.h"
#include "kiln/result.h"

namespace kiln::compile {

/// Thread safety: immutable. Never destroyed and never closed: NVRTC's threads and
/// static objects may use it until the process ends.
struct Nvrtc {
  std::filesystem::path path;
  std::uint64_t address = 0;  // where it is loaded; see fixed_place.h

  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) num_supported_archs = nullptr;
  decltype(&nvrtcGetSupportedArchs) supported_archs = nullptr;
  decltype(&nvrtcCreateProgram) create_program = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&nvrtcAddNameExpression) add_name_expression = nullptr;
  decltype(&nvrtcCompileProgram) compile_program = nullptr;
  decltype(&nvrtcGetLoweredName) lowered_name = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_size = nullptr;
  decltype(&nvrtcGetPTX) ptx = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  // Null before NVRTC 12.0.
  decltype(&nvrtcGetCUBINSize) lto_ir_size = nullptr;
  decltype(&nvrtcGetCUBIN) lto_ir = nullptr;
  // Null before NVRTC 13: then only killing the process ends a build.
  decltype(&nvrtcSetFlowCallback) set_flow_callback = nullptr;
  // Null before NVRTC 12.8, which has no precompiled headers.
  decltype(&nvrtcSetPCHHeapSize) set_pch_heap_size = nullptr;
  decltype(&nvrtcGetPCHCreateStatus) pch_create_status = nullptr;
};

/// The table for `paths.nvrtc`, opened after `paths.builtins`; one table per library
/// path. Thread-safe. Errors: kInvalidArgument for a relative path; kUnavailable with
/// the loader's own message, or the missing entry point.
[[nodiscard]] Result<const Nvrtc*> open_nvrtc(const NvrtcPaths& paths);

/// The error for `result` of `call`, with NVRTC's name for it and the diagnostics in
/// `log`. Out-of-memory texts are kResourceLimit, missing builtins and unsupported
/// versions kUnavailable, bad options kInvalidArgument.
[[nodiscard]] Error nvrtc_error(const Nvrtc& nvrtc, nvrtcResult result,
                                std::string_view call, std::string_view log);

/// Version and supported architectures. Errors: as nvrtc_error.
[[nodiscard]] Result<ToolchainDescription> describe(const Nvrtc& nvrtc);

}  // namespace kiln::compile
