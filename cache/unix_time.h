// Wall-clock time as the object format and the file system keep it: nanoseconds since
// 1970 in 64 bits.

#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace kiln::cache {

[[nodiscard]] inline std::int64_t unix_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

[[nodiscard]] inline std::int64_t to_ns(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace kiln::cache
