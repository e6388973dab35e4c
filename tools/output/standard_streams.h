// What the program prints. Nothing here throws: a reader that went away or a full disk
// must not stop the work.

#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln::tools {

/// Writes `text` to stdout; what goes wrong is kept for flush_output().
void print(std::string_view text);

/// Writes `text` to stderr, as far as that takes it.
void print_error(std::string_view text);

/// What is there to read on stdin, waiting for it; "" at its end. Errors: kCancelled
/// once `stop` is requested; kIo.
[[nodiscard]] Result<std::string> read_input(const std::stop_token& stop);

/// Whether everything printed reached stdout. A reader that closed its pipe wanted no
/// more, which is no error. Errors: kIo, with the first failure.
[[nodiscard]] Result<void> flush_output();

}  // namespace kiln::tools
