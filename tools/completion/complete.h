// What can stand next on a command line, for the completions of the shells in this
// folder, which ask `kiln __complete WORD...`.

#pragma once

#include <string>
#include <vector>

#include "tools/program.h"

namespace kiln::tools {

/// Prints the answers for the last of `words`, which is empty or begun, in the place of
/// the words behind "kiln". One a line: the whole word, and behind a tab its meaning,
/// if it has one. Lines with a colon are for the shell: ":file GLOB", ":file" and
/// ":folder" add what is on the disk, ":open" says that no answer ends its word.
/// Whatever fails has no answers.
void complete(const Program& program, const std::vector<std::string>& words);

}  // namespace kiln::tools
