// What trim and clear report: the contract's document, or two lines for people.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/digest.h"
#include "tools/context.h"

namespace kiln::tools {

struct Removal {
  std::vector<Digest> keys;
  std::uint64_t freed_bytes = 0;
  bool dry_run = false;
};

void print_removal(const Context& context, const Removal& removal);

}  // namespace kiln::tools
