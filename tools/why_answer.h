// Which fields make two keys differ, or why what is asked for misses: the answer of
// `kiln why` and of `kiln attention why`.

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
  /// Of a request: what builds it here, and why that; empty: two keys were compared.
  std::string toolchain_note = {};
};

/// Of an object that is there. Errors: kNotFound, kCorrupt, kIo.
[[nodiscard]] Result<Fields> preimage_of(cache::Cache& cache, const Digest& key);

/// Looks for a request's key, and for the entry that comes nearest where it is not
/// there: among those of the kernel `name`, of any where there are none.
[[nodiscard]] Result<WhyAnswer> explain_miss(cache::Cache& cache, const Digest& key,
                                             const Fields& preimage,
                                             const std::string& name,
                                             std::string toolchain_note);

/// The contract's document, or lines for people.
void print_answer(const WhyAnswer& answer, bool as_json, const Terminal& out);

}  // namespace kiln::tools
