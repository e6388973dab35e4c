// Calls that build nothing: for a program that builds elsewhere, by prepare(), where it
// can be interrupted.

#pragma once

#include <utility>

namespace kiln {

/// Whether calls of this thread get and launch what is loaded, and nothing else. Where
/// something is not, they fail with kNotFound, and launch nothing.
[[nodiscard]] inline bool& only_loaded() {
  thread_local bool is_so = false;
  return is_so;
}

class OnlyLoadedScope {
 public:
  explicit OnlyLoadedScope(bool is_so) : before_(std::exchange(only_loaded(), is_so)) {}
  OnlyLoadedScope(const OnlyLoadedScope&) = delete;
  OnlyLoadedScope& operator=(const OnlyLoadedScope&) = delete;
  ~OnlyLoadedScope() { only_loaded() = before_; }

 private:
  bool before_;
};

}  // namespace kiln
