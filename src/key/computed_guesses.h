// Guesses what #include MACRO and __has_include(MACRO) name. Only a preprocessor knows;
// the compiler reports afterwards which file it found. Even if the key has that file,
// another one that only this directive finds may hide it later. So every operand in any
// text is looked up from each folder with such a directive.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "key/include_search.h"

namespace kiln::key {

/// Thread safety: none.
class ComputedGuesses {
 public:
  /// A text in that place has a computed directive.
  void add_place(const Includer& from) {
    places_.try_emplace("", Place{});  // looked up as <x>
    places_.try_emplace(*from.folder, Place{from});
  }
  /// An operand that occurs in a text, as the value of a -D, or, where there are
  /// conditions, as the value of another macro.
  void add_spelling(const std::string& operand) {
    if (known_.insert(operand).second)
      spellings_.push_back(operand);
  }

  /// Whether any text has a computed directive.
  [[nodiscard]] bool needed() const { return !places_.empty(); }

  struct Guess {
    std::string operand;
    Includer from;
  };
  /// A guess that was not returned before, or nullopt. Adding more can give more.
  [[nodiscard]] std::optional<Guess> next() {
    for (auto& [folder, place] : places_) {
      if (place.tried < spellings_.size())
        return Guess{spellings_[place.tried++], place.from};
    }
    return std::nullopt;
  }

 private:
  struct Place {
    Includer from;
    std::size_t tried = 0;  // how many of spellings_ were returned for it
  };

  std::map<std::string, Place> places_;  // by folder
  std::vector<std::string> spellings_;
  std::set<std::string> known_;
};

}  // namespace kiln::key
