// How help looks: CLI11's text in Kiln's words, order, width and colours.

#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "tools/output/terminal.h"

namespace kiln::tools {

/// Says VERB where CLI11 says SUBCOMMAND, and ends with the groups that repeat in each
/// verb.
[[nodiscard]] std::shared_ptr<CLI::Formatter> help_formatter();

/// Prints the help of a program or verb with that formatter.
void print_help(const Terminal& out, const std::string& text);

}  // namespace kiln::tools
