// How GoogleTest prints a parameter that has a name.

#pragma once

#include <ostream>

namespace kiln::test {

/// `using test::PrintTo;` in the parameter's namespace. What is printed is a part of
/// the test's name for ctest, so it must be the same at every start, as addresses are
/// not.
// NOLINTBEGIN(readability-identifier-naming): GoogleTest's name for it
template <typename Case>
requires requires(const Case& each) {
  each.name;
}
void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}
// NOLINTEND(readability-identifier-naming)

}  // namespace kiln::test
