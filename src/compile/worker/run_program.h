// What a worker does that is started to run a program of another's, such as a compiler:
// it is there to end that program and whatever the program has started.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <span>

namespace kiln::compile {

/// Runs `command` in `folder` with stdout and stderr appended to the file `output`, and
/// sends how it ended (ProgramEnd) on the socket. Once the host has heard it, or has
/// ended, or `limit` is over, all that the program has started is killed, also what has
/// left its process group.
[[noreturn]] void run_program(pid_t parent, std::chrono::milliseconds limit,
                              const char* folder, const char* output,
                              std::span<char*> command);

}  // namespace kiln::compile
