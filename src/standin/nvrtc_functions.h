// Every function that NVRTC 12.0 to 13.5 exports, once. A library that exports another
// one has no stand-in until it is named here.

#pragma once

#define KILN_NVRTC_FUNCTIONS(X)  \
  X(nvrtcAddNameExpression)      \
  X(nvrtcCompileProgram)         \
  X(nvrtcCreateProgram)          \
  X(nvrtcDestroyProgram)         \
  X(nvrtcGetBundledHeadersInfo)  \
  X(nvrtcGetCUBIN)               \
  X(nvrtcGetCUBINSize)           \
  X(nvrtcGetErrorString)         \
  X(nvrtcGetLTOIR)               \
  X(nvrtcGetLTOIRSize)           \
  X(nvrtcGetLoweredName)         \
  X(nvrtcGetNVVM)                \
  X(nvrtcGetNVVMSize)            \
  X(nvrtcGetNumSupportedArchs)   \
  X(nvrtcGetOptiXIR)             \
  X(nvrtcGetOptiXIRSize)         \
  X(nvrtcGetPCHCreateStatus)     \
  X(nvrtcGetPCHHeapSize)         \
  X(nvrtcGetPCHHeapSizeRequired) \
  X(nvrtcGetPTX)                 \
  X(nvrtcGetPTXSize)             \
  X(nvrtcGetProgramLog)          \
  X(nvrtcGetProgramLogSize)      \
  X(nvrtcGetSupportedArchs)      \
  X(nvrtcGetTileIR)              \
  X(nvrtcGetTileIRSize)          \
  X(nvrtcInstallBundledHeaders)  \
  X(nvrtcRemoveBundledHeaders)   \
  X(nvrtcSetFlowCallback)        \
  X(nvrtcSetPCHHeapSize)         \
  X(nvrtcVersion)                \
  X(__nvrtcCPEx)                 \
  X(__nvrtcNvvmHandle)
