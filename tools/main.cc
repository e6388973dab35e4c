// The kiln program.

#include <csignal>
#include <cstdio>
#include <exception>

#include "tools/command_line.h"

int main(int argc, char** argv) {
  // If a reader has gone, the next write gets EPIPE; no signal ends the program.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return kiln::tools::run_command_line({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kiln: internal error: %s\n", error.what());
    return 1;
  }
}
