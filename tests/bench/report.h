// Findings as a table for people and as JSON.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tests/bench/comparison.h"

namespace kiln::bench {

[[nodiscard]] std::string table_head();
/// Without a line's end.
[[nodiscard]] std::string table_line(const Finding& finding);

/// {"load","cores","rows":[{"name","what","floor_name","measured_s","floor_s","ratio",
/// "limit_ratio","limit_slack_s","within","noise","rounds","error"}]}
[[nodiscard]] nlohmann::ordered_json to_json(const std::vector<Finding>& findings);

/// Of the last minute; how busy others kept the machine.
[[nodiscard]] double load_average();

}  // namespace kiln::bench
