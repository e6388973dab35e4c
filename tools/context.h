// What every verb gets: settings, output streams, and the stop signal; and how it ends.

#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "build/config.h"
#include "kiln/result.h"
#include "tools/output/standard_streams.h"
#include "tools/output/terminal.h"
#include "tools/stop_signal.h"
#include "util/try.h"

namespace kiln::tools {

/// What the program's exit status says. Part of the command line's contract.
enum ExitCode : int {
  kAllDone = 0,
  kSomeFailed = 1,     // some items failed or could not be stored, or an unknown key
  kWrongUsage = 2,     // wrong usage or input, and nothing was done
  kUnavailable = 3,    // the environment lacks something
  kInterrupted = 130,  // after SIGINT
  kTerminated = 143,   // after SIGTERM
};

/// Thread safety: printing belongs to the thread that runs the verb.
struct Context {
  Config config;
  bool json = false;  // one document on stdout, everything else on stderr
  bool verbose = false;
  Terminal out{stdout};
  Terminal err{stderr};
  /// Never null while a verb runs, and until its output is flushed.
  std::unique_ptr<StopSignal> stop{};
};

/// Prints `document` on stdout, indented, with one newline. Bytes that are not UTF-8
/// (a path, a log) are replaced, never an error.
void print_json(const nlohmann::ordered_json& document);

/// Null for an empty text.
[[nodiscard]] nlohmann::ordered_json or_null(const std::string& text);

/// `{"code","message"}`, as every `error` in a document.
[[nodiscard]] nlohmann::ordered_json error_json(const Error& error);

/// A failure before any work: "kiln: <message>" on stderr, and with --json
/// `{"error":…}` on stdout. Returns the exit status for it.
[[nodiscard]] int report_failure(const Context& context, const Error& error);

/// What was read from a file that the command line names. One that is there and cannot
/// be read is wrong input (exit status 2), like one that is not there.
template <typename T>
[[nodiscard]] Result<T> from_input(Result<T> read) {
  if (read || (read.error().code != ErrorCode::kIo &&
               read.error().code != ErrorCode::kResourceLimit))
    return read;
  return refuse(std::move(read).error().message);
}

/// Ends every verb: returns its status, or the status of report_failure().
[[nodiscard]] int finish(const Context& context, const Result<int>& result);

/// As finish(), for a verb that looks up keys: an unknown key gives exit 1, because the
/// command line was right.
[[nodiscard]] int finish_lookup(const Context& context, const Result<int>& result);

}  // namespace kiln::tools
