// What this program does when a row starts it again as a new process.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::bench {

/// The command line of such a process.
[[nodiscard]] std::vector<std::string> child_command(
    std::string_view name, const std::vector<std::string>& arguments);

/// The exit status. `arguments` are what stands after the name. Each program of this
/// folder has its own.
[[nodiscard]] int run_child(std::string_view name,
                            const std::vector<std::string>& arguments);

}  // namespace kiln::bench
