// What this program does when a row starts it again as a new process.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"

namespace kiln::bench {

/// The command line of such a process.
[[nodiscard]] std::vector<std::string> child_command(
    std::string_view name, const std::vector<std::string>& arguments);

/// What it does then; each program of this folder has its own children. Errors:
/// kInvalidArgument for a name that it does not know; as the child.
[[nodiscard]] Result<void> do_child(std::string_view name,
                                    const std::vector<std::string>& arguments);

/// do_child() as an exit status, what failed on stderr. `arguments` are what stands
/// after the name.
[[nodiscard]] int run_child(std::string_view name,
                            const std::vector<std::string>& arguments);

}  // namespace kiln::bench
