// What a stand-in asks libkiln.so for (src/nvrtc): NVRTC's functions that take a
// program. Both are in one process, and each may be of another version.

#pragma once

#include <cstddef>

struct _nvrtcProgram;  // NOLINT(bugprone-reserved-identifier): of nvrtc.h

namespace kiln::standin {

using Program = _nvrtcProgram*;  // nvrtcProgram

/// The library that a stand-in stands in for. As long-lived as the process.
struct RealLibrary {
  const char* path;  // by which the loader leaves it alone
  /// The function of the real library, which is opened. Never null: a function that is
  /// missing fails.
  void* (*find)(const char* function);
};

/// X(name, types of the arguments): each returns an nvrtcResult.
#define KILN_NVRTC_PROGRAM_FUNCTIONS(X)                                              \
  X(nvrtcCreateProgram, Program*, const char*, const char*, int, const char* const*, \
    const char* const*)                                                              \
  X(nvrtcDestroyProgram, Program*)                                                   \
  X(nvrtcAddNameExpression, Program, const char*)                                    \
  X(nvrtcCompileProgram, Program, int, const char* const*)                           \
  X(nvrtcGetLoweredName, Program, const char*, const char**)                         \
  X(nvrtcGetPTXSize, Program, std::size_t*)                                          \
  X(nvrtcGetPTX, Program, char*)                                                     \
  X(nvrtcGetCUBINSize, Program, std::size_t*)                                        \
  X(nvrtcGetCUBIN, Program, char*)                                                   \
  X(nvrtcGetLTOIRSize, Program, std::size_t*)                                        \
  X(nvrtcGetLTOIR, Program, char*)                                                   \
  X(nvrtcGetNVVMSize, Program, std::size_t*)                                         \
  X(nvrtcGetNVVM, Program, char*)                                                    \
  X(nvrtcGetOptiXIRSize, Program, std::size_t*)                                      \
  X(nvrtcGetOptiXIR, Program, char*)                                                 \
  X(nvrtcGetTileIRSize, Program, std::size_t*)                                       \
  X(nvrtcGetTileIR, Program, char*)                                                  \
  X(nvrtcGetProgramLogSize, Program, std::size_t*)                                   \
  X(nvrtcGetProgramLog, Program, char*)                                              \
  X(nvrtcGetPCHCreateStatus, Program)                                                \
  X(nvrtcGetPCHHeapSizeRequired, Program, std::size_t*)                              \
  X(nvrtcSetFlowCallback, Program, int (*)(void*, void*), void*)

/// Each function may get a program that is not its own, which it hands on.
struct Engine {
#define KILN_MEMBER(name, ...) int (*name)(const RealLibrary& real, __VA_ARGS__);
  KILN_NVRTC_PROGRAM_FUNCTIONS(KILN_MEMBER)
#undef KILN_MEMBER
  /// At the end of the process: writes what became of its compiles, "2 hits, 1 built",
  /// to `text` of `size` bytes, at the first call.
  void (*end)(char* text, std::size_t size);
};

/// Equal where both sides have the same struct.
#define KILN_TEXT(name, ...) #name "(" #__VA_ARGS__ ")"
inline constexpr char kEngineLayout[] =
    KILN_NVRTC_PROGRAM_FUNCTIONS(KILN_TEXT) "end(char*, size_t)";
#undef KILN_TEXT

/// Exported by libkiln.so as kEngineSymbol. Null for another layout.
using FindEngine = const Engine* (*)(const char* layout);
inline constexpr const char* kEngineSymbol = "kiln_nvrtc_engine";

}  // namespace kiln::standin
