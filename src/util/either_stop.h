// A stop token for work that two may stop: its caller and its owner.

#pragma once

#include <functional>
#include <stop_token>
#include <utility>

namespace kiln {

/// Stops when either of two tokens does. Thread safety: as stop_token.
class EitherStop {
 public:
  EitherStop(std::stop_token first, std::stop_token second)
      : first_(std::move(first), [this] { source_.request_stop(); }),
        second_(std::move(second), [this] { source_.request_stop(); }) {}

  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::stop_callback<std::function<void()>> first_;
  std::stop_callback<std::function<void()>> second_;
};

}  // namespace kiln
