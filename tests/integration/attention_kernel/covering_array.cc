#include "tests/integration/attention_kernel/covering_array.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace kiln::attention_test {
namespace {

constexpr std::size_t kFree = std::numeric_limits<std::size_t>::max();

/// The next of all rows that agree with `fixed` where it is not kFree; false after the
/// last. The last axis is the fastest.
bool advance(Row& row, const Row& fixed, const std::vector<std::size_t>& sizes) {
  for (std::size_t axis = row.size(); axis-- > 0;) {
    if (fixed[axis] != kFree)
      continue;
    if (++row[axis] < sizes[axis])
      return true;
    row[axis] = 0;
  }
  return false;
}

Row first_of(const Row& fixed) {
  Row row = fixed;
  for (std::size_t& value : row) value = value == kFree ? 0 : value;
  return row;
}

class Pairs {
 public:
  explicit Pairs(const std::vector<std::size_t>& sizes) : sizes_(sizes) {
    std::size_t count = 0;
    for (std::size_t a = 0; a < sizes.size(); ++a) {
      for (std::size_t b = a + 1; b < sizes.size(); ++b) {
        axes_.push_back({a, b, count});
        count += sizes[a] * sizes[b];
      }
    }
    uses_.resize(count, 0);
  }

  struct Worth {
    std::size_t fresh = 0;
    std::size_t uses = 0;  // of the others
  };
  [[nodiscard]] Worth worth(const Row& row) const {
    Worth worth;
    for (const Axes& axes : axes_) {
      const std::size_t uses = uses_[place(axes, row)];
      worth.fresh += uses == 0 ? 1 : 0;
      worth.uses += uses;
    }
    return worth;
  }
  void use(const Row& row) {
    for (const Axes& axes : axes_) ++uses_[place(axes, row)];
  }

  [[nodiscard]] std::vector<Pair> unused() const {
    std::vector<Pair> pairs;
    for (const Axes& axes : axes_) {
      for (std::size_t a = 0; a < sizes_[axes.a]; ++a) {
        for (std::size_t b = 0; b < sizes_[axes.b]; ++b) {
          if (uses_[axes.first + a * sizes_[axes.b] + b] == 0)
            pairs.push_back({axes.a, a, axes.b, b});
        }
      }
    }
    return pairs;
  }

 private:
  struct Axes {
    std::size_t a;
    std::size_t b;
    std::size_t first;  // of their pairs in uses_
  };
  [[nodiscard]] std::size_t place(const Axes& axes, const Row& row) const {
    return axes.first + row[axes.a] * sizes_[axes.b] + row[axes.b];
  }

  const std::vector<std::size_t>& sizes_;
  std::vector<Axes> axes_;
  std::vector<std::size_t> uses_;
};

}  // namespace

CoveringArray covering_array(const std::vector<std::size_t>& sizes, std::size_t crossed,
                             const std::function<bool(const Row&)>& is_allowed) {
  CoveringArray array;
  Pairs pairs(sizes);
  const auto add_best = [&](const Row& fixed) {
    std::optional<Row> best;
    Pairs::Worth most;
    Row row = first_of(fixed);
    do {
      const Pairs::Worth worth = pairs.worth(row);
      const bool is_better = !best || worth.fresh > most.fresh ||
                             (worth.fresh == most.fresh && worth.uses < most.uses);
      if (is_better && is_allowed(row)) {
        best = row;
        most = worth;
      }
    } while (advance(row, fixed, sizes));
    if (best) {
      pairs.use(*best);
      array.rows.push_back(*best);
    }
    return best.has_value();
  };

  Row combination(sizes.size(), kFree);
  for (std::size_t axis = 0; axis < crossed; ++axis) combination[axis] = 0;
  Row not_crossed(sizes.size(), 0);
  for (std::size_t axis = 0; axis < crossed; ++axis) not_crossed[axis] = kFree;
  do {
    add_best(combination);
  } while (advance(combination, not_crossed, sizes));

  // What the rows so far have not.
  std::vector<Pair> left = pairs.unused();
  while (!left.empty()) {
    const Pair pair = left.front();
    Row fixed(sizes.size(), kFree);
    fixed[pair.axis] = pair.value;
    fixed[pair.other_axis] = pair.other_value;
    if (!add_best(fixed))
      array.impossible.push_back(pair);
    left = pairs.unused();
    std::erase_if(left, [&](const Pair& each) {
      return std::ranges::find(array.impossible, each) != array.impossible.end();
    });
  }
  return array;
}

}  // namespace kiln::attention_test
