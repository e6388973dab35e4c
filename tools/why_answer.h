// Which fields make two keys differ, or why requests miss: the answer of `kiln why` and
// of `kiln attention why`.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "build/nearest_entry.h"
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
  cache::Tier tier = cache::Tier::kDisk;  // of a request that hits
  std::string label = {};  // of a request, "scaled_softmax_fwd:dtype=bf16"
  std::string arch = {};   // of a request
  std::vector<cache::Entry> entries = {};  // of two keys
};

/// Looks up requests and finds what comes nearest. Reads the entries of a kernel once.
/// Thread safety: none.
class MissExplainer {
 public:
  explicit MissExplainer(cache::Cache& cache)
      : cache_(cache),
        entries_(cache, kMostCompared, NearestEntries::IfNoneIsLike::kAnyEntry) {}

  /// Looks up a request's key. On a miss, finds the nearest entry among those that are
  /// like it, or among all entries if there are none.
  [[nodiscard]] Result<WhyAnswer> explain(const Digest& key, const Compared& wanted,
                                          std::string toolchain_note);

 private:
  static constexpr std::size_t kMostCompared = 2000;

  cache::Cache& cache_;
  NearestEntries entries_;
};

/// The contract's document, or lines for people.
void print_answer(const WhyAnswer& answer, bool as_json, const Terminal& out);

/// Of several requests that one pattern, `text`, stands for. The document is that of
/// `answers[shown]` with all of them in "requests".
void print_answers(std::string_view text, std::span<const WhyAnswer> answers,
                   std::size_t shown, bool as_json, const Terminal& out);

}  // namespace kiln::tools
