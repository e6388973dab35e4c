// What every worker is: a process that answers one request after another for the pool
// that started it, on the socket it was given, and ends with that pool. Everything that
// can hang, crash or eat memory happens in such a process.

#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "compile/protocol/protocol.h"
#include "kiln/result.h"

namespace kiln::compile {

using Answer = std::function<Result<Reply>(const Request&)>;

/// A worker's main(): `--version`, or the service until the pool is gone. Exceptions of
/// libraries that leave `answer` become errors.
[[nodiscard]] int run_worker(std::string_view name, std::span<char*> arguments,
                             const Answer& answer);

/// Tells the pool how far this request is. From an Answer.
void say(BuildPhase phase);

}  // namespace kiln::compile
