// Functions that an older driver does not have, taken out of the library that is
// already there.
//
// dlsym reads a library's dynamic symbol table in memory, and passes over a symbol
// whose value is 0. So the symbols' values are set to 0 there: in this process's own
// copy of those pages, nowhere else. The functions themselves stay, for those who have
// found them before, and so that they can be put back.

#pragma once

#include <string_view>

namespace kiln::simulated {

/// Every version of `name`. False where there is no such function. Thread-safe among
/// its like; a concurrent dlsym sees the function or does not.
bool remove_function(std::string_view name);

[[nodiscard]] bool is_removed(std::string_view name);

/// All of them, then KILN_SIMULATED_ABSENT once more.
void restore_functions();

/// False if KILN_SIMULATED_ABSENT names a function that there is not.
[[nodiscard]] bool absent_list_is_good();

}  // namespace kiln::simulated
