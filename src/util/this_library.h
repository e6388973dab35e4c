// Which files this code was loaded from.

#pragma once

#include <filesystem>

namespace kiln {

/// The file that contains this code: the shared library, or the program if Kiln is
/// linked statically. Named in the message that refuses a worker from another build.
[[nodiscard]] std::filesystem::path this_library();

/// The program of this process; empty without /proc.
[[nodiscard]] std::filesystem::path this_program();

}  // namespace kiln
