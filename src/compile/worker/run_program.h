// What a worker does that is started to run a program of another's, such as a compiler:
// it is there to end that program and whatever the program has started.

#pragma once

#include <sys/types.h>

#include <span>

namespace kiln::compile {

/// Runs `command` in `folder` with stdout and stderr appended to the file `output`, and
/// sends how it ended (ProgramEnd) on the socket. If the host ends before, or has heard
/// it, the whole process group is killed.
[[noreturn]] void run_program(pid_t parent, const char* folder, const char* output,
                              std::span<char*> command);

}  // namespace kiln::compile
