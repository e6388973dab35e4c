// Numbers, sizes and durations as people write and read them.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "kiln/result.h"

namespace kiln {

/// "10GiB", "1.5G", "512k", "4096B", "0": bytes, 1024-based, case ignored, "iB" or "B"
/// optional. Errors: kInvalidArgument, also for a number without a unit, whose writer
/// may mean GiB, and for a size that does not fit 63 bits.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

struct NumberRange {
  std::uint64_t least;
  std::uint64_t most;
};

/// A whole number in decimal digits. Errors: kInvalidArgument, naming the range.
[[nodiscard]] Result<std::uint64_t> parse_number(std::string_view text,
                                                 NumberRange range);

/// "30m", "12h", "7d", "1.5s", "250ms"; a bare number is seconds.
/// Errors: kInvalidArgument (also a negative one, or over 100 years).
[[nodiscard]] Result<std::chrono::milliseconds> parse_duration(std::string_view text);

/// As parse_duration(), of what removes: a number without a unit is an error, since its
/// writer may mean days. Errors: kInvalidArgument.
[[nodiscard]] Result<std::chrono::milliseconds> parse_age(std::string_view text);

/// As parse_duration(), but more than zero. Errors: kInvalidArgument.
[[nodiscard]] Result<std::chrono::milliseconds> parse_time_limit(std::string_view text);

/// "1.5 GiB", "12 KiB", "873 B".
[[nodiscard]] std::string format_size(std::uint64_t bytes);

/// "3 d", "12 h", "5 min", "42 s", "180 ms": two digits are enough for people.
[[nodiscard]] std::string format_duration(std::chrono::milliseconds duration);

/// RFC 3339 in UTC with seconds, "2026-01-31T12:00:00Z".
[[nodiscard]] std::string format_time(std::chrono::system_clock::time_point time);

}  // namespace kiln
