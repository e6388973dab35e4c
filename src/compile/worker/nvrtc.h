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

/// X(member, function) of what NVRTC has since 11.2.
#define KILN_NVRTC_FUNCTIONS(X)                     \
  X(version, nvrtcVersion)                          \
  X(error_string, nvrtcGetErrorString)              \
  X(num_supported_archs, nvrtcGetNumSupportedArchs) \
  X(supported_archs, nvrtcGetSupportedArchs)        \
  X(create_program, nvrtcCreateProgram)             \
  X(destroy_program, nvrtcDestroyProgram)           \
  X(add_name_expression, nvrtcAddNameExpression)    \
  X(compile_program, nvrtcCompileProgram)           \
  X(lowered_name, nvrtcGetLoweredName)              \
  X(log_size, nvrtcGetProgramLogSize)               \
  X(log, nvrtcGetProgramLog)                        \
  X(ptx_size, nvrtcGetPTXSize)                      \
  X(ptx, nvrtcGetPTX)                               \
  X(cubin_size, nvrtcGetCUBINSize)                  \
  X(cubin, nvrtcGetCUBIN)

/// Thread safety: immutable. Never destroyed and never closed: NVRTC's threads and
/// static objects may use it until the process ends.
struct Nvrtc {
  std::filesystem::path path;
  std::uint64_t address = 0;  // where it is loaded; see fixed_place.h

// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name
#define KILN_NVRTC_MEMBER(member, function) decltype(&::function) member = nullptr;
  KILN_NVRTC_FUNCTIONS(KILN_NVRTC_MEMBER)
#undef KILN_NVRTC_MEMBER
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
