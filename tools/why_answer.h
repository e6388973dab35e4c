// Which fields make two keys differ, or why a request misses: the answer of `kiln why`
// and of `kiln attention why`.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "key/difference.h"
#include "kiln/result.h"
#include "tools/output/terminal.h"

namespace kiln::tools {

struct WhyAnswer {
  bool same = false;
  Digest key;                     // the first one, or the request's
  std::optional<Digest> nearest;  // the second one, or the nearest entry
  std::vector<key::FieldDifference> differences;
  /// For a request: the toolchain used here, and why. Empty: two keys were compared.
  std::string toolchain_note = {};
};

/// The preimage of a stored object. Errors: kNotFound, kCorrupt, kIo.
[[nodiscard]] Result<Fields> preimage_of(cache::Cache& cache, const Digest& key);

/// Looks up a request's key. On a miss, finds the nearest entry among those of the
/// kernel `name`, or among all entries if there are none.
[[nodiscard]] Result<WhyAnswer> explain_miss(cache::Cache& cache, const Digest& key,
                                             const Fields& preimage,
                                             const std::string& name,
                                             std::string toolchain_note);

/// The contract's document, or lines for people.
void print_answer(const WhyAnswer& answer, bool as_json, const Terminal& out);

}  // namespace kiln::tools
