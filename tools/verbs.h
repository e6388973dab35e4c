// The verbs, each in tools/verbs/<verb>.cc. An add function declares the verb's options
// and returns what runs once they are parsed.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/context.h"
#include "tools/option_set.h"

namespace kiln::tools {

/// What a verb does once its options are parsed; its result is for finish().
using Run = std::function<Result<int>(Context&)>;

[[nodiscard]] Run add_warm(OptionSet& cli);
[[nodiscard]] Run add_compile(OptionSet& cli);
[[nodiscard]] Run add_render(OptionSet& cli);
[[nodiscard]] Run add_templates(OptionSet& cli);
[[nodiscard]] Run add_ls(OptionSet& cli);
[[nodiscard]] Run add_show(OptionSet& cli);
[[nodiscard]] Run add_why(OptionSet& cli);
[[nodiscard]] Run add_stats(OptionSet& cli);
[[nodiscard]] Run add_verify(OptionSet& cli);
[[nodiscard]] Run add_trim(OptionSet& cli);
[[nodiscard]] Run add_clear(OptionSet& cli);
[[nodiscard]] Run add_pack(OptionSet& cli);
[[nodiscard]] Run add_unpack(OptionSet& cli);
[[nodiscard]] Run add_push(OptionSet& cli);
[[nodiscard]] Run add_pull(OptionSet& cli);
[[nodiscard]] Run add_key(OptionSet& cli);
[[nodiscard]] Run add_ps(OptionSet& cli);
[[nodiscard]] Run add_events(OptionSet& cli);
[[nodiscard]] Run add_doctor(OptionSet& cli);
[[nodiscard]] Run add_attention(OptionSet& cli);
[[nodiscard]] Run add_bench(OptionSet& cli);
[[nodiscard]] Run add_run(OptionSet& cli);
[[nodiscard]] Run add_inspect(OptionSet& cli);

/// The options of `kiln attention` that are not for the action among `words`.
[[nodiscard]] std::vector<std::string> foreign_attention_options(
    const std::vector<std::string>& words);

}  // namespace kiln::tools
