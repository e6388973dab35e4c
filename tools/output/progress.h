// Progress of long work on stderr: one redrawn line on a terminal, below what
// print_error() writes meanwhile; plain lines now and then elsewhere.

#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>

#include "tools/output/terminal.h"
#include "util/mutex.h"

namespace kiln::tools {

/// Thread safety: all methods may be called from any thread.
class Progress {
 public:
  /// `total` items, each announced by start() and ended by finish().
  Progress(const Terminal& terminal, std::size_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Takes the line away, so that a summary can be printed in its place.
  ~Progress();

  void start(const std::string& item);
  /// `left`: how long the rest will take, if that is known.
  void finish(const std::string& item, std::optional<std::chrono::milliseconds> left);

 private:
  using Clock = std::chrono::steady_clock;

  void draw() KILN_REQUIRES(mutex_);
  void erase() KILN_REQUIRES(mutex_);
  [[nodiscard]] std::string line() const KILN_REQUIRES(mutex_);

  // Constant after construction.
  const Terminal& terminal_;
  const std::size_t total_;

  Mutex mutex_;
  std::multiset<std::string> running_ KILN_GUARDED_BY(mutex_);
  std::size_t done_ KILN_GUARDED_BY(mutex_) = 0;
  std::optional<std::chrono::milliseconds> left_ KILN_GUARDED_BY(mutex_);
  bool drawn_ KILN_GUARDED_BY(mutex_) = false;
  Clock::time_point last_draw_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::tools
