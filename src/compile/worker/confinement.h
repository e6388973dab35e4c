// What a compile worker cannot do, whatever the compiler in it is made to do by a
// source or a library: gain privileges, start programs, look into other processes,
// reach the network.

#pragma once

#include "kiln/result.h"

namespace kiln::compile {

/// Of this process and every thread that it starts later, for good. To be called before
/// there is a second thread. Calls that are forbidden fail with EACCES. Where the
/// kernel has no filter for system calls, or a machine's are not known here, only new
/// privileges are forbidden. Errors: kUnavailable, where not even that can be.
[[nodiscard]] Result<void> confine_process();

}  // namespace kiln::compile
