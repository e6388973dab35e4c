// Wall-clock time as the object format and the file system keep it: nanoseconds since
// 1970 in 64 bits.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>

namespace kiln::cache {

[[nodiscard]] inline std::int64_t unix_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Clamped to 1970..2262, since a file's time stamp may be any number of seconds. Never
/// negative, so that the difference of two always fits.
[[nodiscard]] inline std::int64_t to_ns(const timespec& time) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max() / kSecond - 1;
  return std::clamp<std::int64_t>(time.tv_sec, 0, kLast) * kSecond + time.tv_nsec;
}

}  // namespace kiln::cache
