// cuda.h for those who implement it, and its only includer here: its functions are
// exported, and the names that it maps to another version in one toolkit and not in the
// next are taken back, so that a definition's name is the symbol's name whichever
// cuda.h (12 or 13) is there.

#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#undef cuCtxCreate
#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuStreamGetCaptureInfo

/// For functions that not every cuda.h declares.
#define KILN_SIMULATED_EXPORT extern "C" [[gnu::visibility("default")]]
