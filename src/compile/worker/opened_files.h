// Records every file that the worker's compiler or linker tries to open for reading,
// with the stamp of the descriptor that it got. The
// implementation exports open, open64, fopen and fopen64, which the libraries then call
// in place of libc's. Scanning the source is not enough: an #include can be computed.
// NVRTC 12.4 to 13.5 try to open every place where a header may be, and nothing else;
// but of a second name of a file with #pragma once they ask for the inode alone. So
// __xstat, their stat(), is exported, too, and records a file that is there.
// Files of the driver, which NVRTC starts, and what Kiln reads itself are left out.
// Linked into kiln-worker only.

#pragma once

#include "compile/protocol/job.h"

namespace kiln::compile {

/// Clears the report and starts recording. Thread-safe.
void start_recording_files();

/// Stops recording and returns the report. Thread-safe.
[[nodiscard]] FileReport stop_recording_files();

}  // namespace kiln::compile
