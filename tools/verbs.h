// The verbs, each in tools/verbs/<verb>.cc. An add function declares the verb's options
// and returns what runs once they are parsed.

#pragma once

#include "tools/command_line.h"

namespace kiln::tools {

[[nodiscard]] Run add_warm(CLI::App& app);
[[nodiscard]] Run add_compile(CLI::App& app);
[[nodiscard]] Run add_render(CLI::App& app);
[[nodiscard]] Run add_templates(CLI::App& app);
[[nodiscard]] Run add_ls(CLI::App& app);
[[nodiscard]] Run add_show(CLI::App& app);
[[nodiscard]] Run add_why(CLI::App& app);
[[nodiscard]] Run add_stats(CLI::App& app);
[[nodiscard]] Run add_verify(CLI::App& app);
[[nodiscard]] Run add_trim(CLI::App& app);
[[nodiscard]] Run add_clear(CLI::App& app);
[[nodiscard]] Run add_doctor(CLI::App& app);
[[nodiscard]] Run add_attention(CLI::App& app);
[[nodiscard]] Run add_bench(CLI::App& app);

}  // namespace kiln::tools
