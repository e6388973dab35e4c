#include "util/nearest.h"

#include <algorithm>
#include <vector>

namespace kiln {
namespace {

// Optimal string alignment distance (Damerau-Levenshtein without repeated edits).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1,
                                             std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

/// "rms_norm" and "rmsnorm" are one word.
std::string without_separators(std::string_view word) {
  std::string letters(word);
  std::erase_if(letters, [](char c) { return c == '_' || c == '-'; });
  return letters;
}

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// "nope" and "rope": two short words, and no typo.
bool begins_otherwise(std::string_view a, std::string_view b) {
  constexpr std::size_t kShort = 5;
  return a.size() == b.size() && a.size() <= kShort && a.size() > 1 && a[0] != b[0] &&
         (a[0] != b[1] || a[1] != b[0]);
}

/// The candidates that begin with `word`, or else have it in them, unless they are
/// many.
std::vector<std::string> longer_forms(std::string_view word,
                                      std::span<const std::string> candidates) {
  constexpr std::size_t kShortest = 3;
  constexpr std::size_t kMost = 4;
  std::vector<std::string> begun;
  std::vector<std::string> others;
  const std::string letters = without_separators(word);
  for (const std::string& candidate : candidates) {
    const std::size_t at = without_separators(candidate).find(letters);
    if (at != std::string::npos)
      (at == 0 ? begun : others).push_back(candidate);
  }
  std::vector<std::string>& found = begun.empty() ? others : begun;
  if (letters.size() < kShortest || found.size() > kMost)
    found.clear();
  return std::move(found);
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   std::span<const std::string> candidates) {
  constexpr std::size_t kLongestWord = 256;
  std::optional<std::string> best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    if (word.size() > kLongestWord || candidate.size() > kLongestWord)
      continue;
    const std::string_view a = without_dashes(word);
    const std::string_view b = without_dashes(candidate);
    const std::size_t distance = edit_distance(a, b);
    const std::size_t allowed =
        std::max<std::size_t>(1, std::max(a.size(), b.size()) / 3);
    if (distance <= allowed && !begins_otherwise(a, b) &&
        (!best || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word,
                         std::span<const std::string> candidates) {
  std::vector<std::string> found = longer_forms(word, candidates);
  if (found.empty()) {
    if (auto one = nearest(word, candidates))
      found.push_back(*std::move(one));
  }
  std::string text;
  for (const std::string& each : found)
    text += (text.empty() ? ", did you mean '" : " or '") + each + "'";
  return text.empty() ? "" : text + "?";
}

}  // namespace kiln
