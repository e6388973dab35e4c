// Covering arrays of strength 2 (all-pairs testing): few rows with every pair of values
// of any two axes. Knows how many values an axis has, and not what they are.

#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace kiln::attention_test {

/// Of each axis the number of a value.
using Row = std::vector<std::size_t>;

/// A value of one axis and one of a later axis.
struct Pair {
  std::size_t axis = 0;
  std::size_t value = 0;
  std::size_t other_axis = 0;
  std::size_t other_value = 0;
  friend bool operator==(const Pair&, const Pair&) = default;
};

struct CoveringArray {
  std::vector<Row> rows;
  std::vector<Pair> impossible;  // no allowed row has them
};

/// Allowed rows with every pair that any has, and with every combination of values of
/// the first `crossed` axes for which one is allowed. `sizes` has each axis's number of
/// values. Greedy: each row brings most pairs that are new, then those used least. The
/// same rows every time.
[[nodiscard]] CoveringArray covering_array(
    const std::vector<std::size_t>& sizes, std::size_t crossed,
    const std::function<bool(const Row&)>& is_allowed);

}  // namespace kiln::attention_test
