// What trim and clear report: the contract's document, or two lines for people.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "tools/context.h"

namespace kiln::tools {

struct Removal {
  std::vector<Digest> keys;  // those of older formats included
  std::uint64_t freed_bytes = 0;
  std::uint64_t older = 0;  // how many of them are of an older version of the format
  bool dry_run = false;
};

/// ", 8 of them of an older format", or nothing where there are none.
[[nodiscard]] std::string older_part(std::uint64_t count);

void print_removal(const Context& context, const Removal& removal);

}  // namespace kiln::tools
