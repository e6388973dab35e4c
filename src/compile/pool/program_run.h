// Runs a program that takes time, such as a compiler: in a process group that is killed
// at a limit, with this process, and at the program's end, so that nothing goes on.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compile/protocol/program_end.h"
#include "kiln/result.h"
#include "process/child_process.h"

namespace kiln::compile {

struct ProgramRun {
  std::filesystem::path worker;      // kiln-worker, which watches over it
  std::vector<std::string> command;  // the first is a path, or is looked for in PATH
  std::vector<std::string> environment;  // "NAME=value": all of it
  std::filesystem::path folder;          // where it runs
  std::filesystem::path output;  // of a file, to which its stdout and stderr are added
};

/// Blocks until the program has ended, whatever its status; stdin is empty. Errors:
/// kInvalidArgument, no command; kUnavailable, it could not be started; kTimeout,
/// kResourceLimit and kCancelled, it was killed.
[[nodiscard]] Result<ProgramEnd> run_to_its_end(const ProgramRun& run,
                                                const ExchangeLimits& limits);

}  // namespace kiln::compile
