// Every file that the worker's compiler asks for, as the process itself sees it: the
// implementation exports open, open64, fopen and fopen64, which the libraries then call
// in place of libc's. Includes can be computed, so no reading of the text finds all.
// NVRTC 12.9 and 13.0 try to open every place where a header may be, and nothing else;
// what the driver reads, which NVRTC starts, is left out.
// Linked into kiln-worker only.

#pragma once

#include "compile/protocol/job.h"

namespace kiln::compile {

/// Forgets what was asked for so far and records from now on. Thread-safe.
void start_recording_files();

/// Stops, and returns what was asked for meanwhile. Thread-safe.
[[nodiscard]] FileReport stop_recording_files();

}  // namespace kiln::compile
