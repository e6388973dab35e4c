// A short program that is run for what it prints: a signer, a helper of credentials.

#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

struct CommandRun {
  std::string name;                // in messages
  std::vector<std::string> words;  // the program, by PATH, and its arguments
  ByteView input;                  // on its standard input, at most 4096 bytes
  std::chrono::milliseconds limit;
  std::size_t most_bytes = 4096;  // of its output
  bool quotes_errors = false;     // in the error; else they go where this process's go
};

/// What the program prints until it ends, whoever else has its pipes. It gets no
/// descriptor but these three, and is killed with this process; its process group is
/// killed after the limit. Errors: kTimeout; kUnavailable, if it cannot be started,
/// fails or prints too much. None has any part of what it prints to stdout.
[[nodiscard]] Result<std::string> run_command(const CommandRun& run);

}  // namespace kiln
