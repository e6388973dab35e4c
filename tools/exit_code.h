// What the program's exit status says. Part of the command line's contract.

#pragma once

#include "kiln/result.h"

namespace kiln::tools {

enum ExitCode : int {
  kAllDone = 0,
  kSomeFailed = 1,     // some items failed or could not be stored, or an unknown key
  kWrongUsage = 2,     // wrong usage or input, and nothing was done
  kUnavailable = 3,    // the environment lacks something
  kInterrupted = 130,  // after SIGINT
  kTerminated = 143,   // after SIGTERM
};

/// The status for an error that stopped a verb before it did any work.
[[nodiscard]] constexpr ExitCode exit_code_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return kWrongUsage;
    case ErrorCode::kUnavailable:
      return kUnavailable;
    default:
      return kSomeFailed;
  }
}

}  // namespace kiln::tools
