// The problems in the tables of SUPPORT.md.

#pragma once

#include <string>
#include <vector>

#include "attention/problem.h"

namespace kiln::attention {

struct SupportRow {
  std::string name;
  Problem problem;
};
struct SupportTable {
  std::string title;
  std::vector<SupportRow> rows;
};

[[nodiscard]] std::vector<SupportTable> support_tables();

}  // namespace kiln::attention
