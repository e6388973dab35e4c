// The main loop of every worker process: it answers one request after another on its
// socket for the pool that started it, and ends with that pool. Everything that can
// hang, crash or exhaust memory runs in such a process.

#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "compile/protocol/protocol.h"
#include "kiln/result.h"

namespace kiln::compile {

using Answer = std::function<Result<Reply>(const Request&)>;

/// A worker's main(): handles `--version`, or serves requests until the pool is gone.
/// Exceptions that libraries throw out of `answer` become errors.
[[nodiscard]] int run_worker(std::string_view name, std::span<char*> arguments,
                             const Answer& answer);

/// Reports the current request's phase to the pool. Called by an Answer.
void report_phase(BuildPhase phase);

}  // namespace kiln::compile
