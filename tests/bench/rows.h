// The rows of the table, by what they are about.

#pragma once

#include <vector>

#include "tests/bench/comparison.h"
#include "tests/bench/settings.h"

namespace kiln::bench {

/// All of this program; each has its own.
[[nodiscard]] std::vector<Row> all_rows(const Settings& settings);

[[nodiscard]] std::vector<Row> key_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> hit_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> build_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> publish_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> list_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> attention_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> plan_rows(const Settings& settings);

}  // namespace kiln::bench
