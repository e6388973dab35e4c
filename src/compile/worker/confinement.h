// Keeps a compile worker from gaining privileges, starting programs, looking into other
// processes and reaching the network, whatever a source or a library makes its compiler
// do.

#pragma once

#include "kiln/result.h"

namespace kiln::compile {

/// Confines this process, and every thread that it starts later, permanently. Call it
/// before there is a second thread. Forbidden calls fail with EACCES. Without seccomp
/// in the kernel, or on an unknown machine architecture, only new privileges are
/// forbidden. Errors: kIo, if even that fails.
[[nodiscard]] Result<void> confine_process();

}  // namespace kiln::compile
