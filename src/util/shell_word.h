// Text that a person, or a script, gives to a shell.

#pragma once

#include <string>
#include <string_view>

namespace kiln {

/// One word for a POSIX shell: quoted, if it needs to be.
[[nodiscard]] std::string shell_word(std::string_view word);

}  // namespace kiln
