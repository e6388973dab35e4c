#include "util/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "util/nearest.h"

namespace kiln {

Result<std::size_t> position_of(std::string_view word,
                                std::span<const std::string_view> words) {
  if (const auto found = std::ranges::find(words, word); found != words.end())
    return static_cast<std::size_t>(found - words.begin());
  const std::vector<std::string> known(words.begin(), words.end());
  return refuse("'{}' is none of {}{}", word, fmt::join(words, ", "),
                did_you_mean(word, known));
}

}  // namespace kiln
