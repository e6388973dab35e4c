// What the program prints. Nothing here throws: a reader that went away or a full disk
// must not stop the work.

#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln::tools {

/// Gives a descriptor to each standard stream that the caller has closed. Otherwise the
/// first files that the program opens would get their numbers. Reading and writing
/// still fail. Call it first.
void open_missing_streams();

/// Writes `text` to stdout; flush_output() reports a failure.
void print(std::string_view text);

/// Writes `text` to stderr, in the place of a bar that is drawn there
/// ("\r\033[K[##..]", which a lone "\r\033[K" takes away); a failure is ignored.
/// Thread-safe.
void print_error(std::string_view text);

/// The same for what is neither a warning nor an error, and for progress: nothing after
/// leave_notes_out(), which is for --quiet.
void print_note(std::string_view text);
void leave_notes_out();

/// From now on the library's warnings look like the program's own. Any thread may warn.
void print_warnings();

/// Waits for input on stdin and returns what is there; "" at its end. Errors:
/// kCancelled once `stop` is requested; kIo.
[[nodiscard]] Result<std::string> read_input(const std::stop_token& stop);

/// Flushes stdout; succeeds if everything printed reached it. A closed pipe is no
/// error: its reader wanted no more. Errors: kIo, with the first failure.
[[nodiscard]] Result<void> flush_output();

}  // namespace kiln::tools
