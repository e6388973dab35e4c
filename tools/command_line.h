// From argv to a verb. CLI11 parses; this file decides what is valid and how errors
// read, so that wrong usage always gives exit 2, one sentence and the nearest match.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/context.h"
#include "tools/option_set.h"

namespace kiln::tools {

/// What a verb does once its options are parsed; returns the exit status.
using Run = std::function<int(Context&)>;

/// One verb of the program. `add` declares its options and returns its Run,
/// which may refer to them through shared ownership.
struct Verb {
  const char* name;
  const char* summary;
  const char* group;
  Run (*add)(OptionSet& cli);
};

/// All verbs, in the order in which help lists them.
[[nodiscard]] std::span<const Verb> verbs();

/// Runs the program; returns the exit status. Reads the environment once.
[[nodiscard]] int run_command_line(std::vector<std::string> arguments);

}  // namespace kiln::tools
