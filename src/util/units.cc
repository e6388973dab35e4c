#include "util/units.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "util/text.h"
#include "util/try.h"

namespace kiln {
namespace {

struct Quantity {
  double value;
  std::string unit;  // lower case
};

std::optional<Quantity> split(std::string_view text) {
  const std::size_t digits =
      std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0)
    return std::nullopt;
  const std::string number(text.substr(0, digits));
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (end != number.c_str() + number.size())
    return std::nullopt;
  std::string_view rest = text.substr(digits);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return Quantity{value, lower_case(rest)};
}

}  // namespace

Result<std::uint64_t> parse_number(std::string_view text, NumberRange range) {
  const auto value = number_of<std::uint64_t>(text);
  if (!value || *value < range.least || *value > range.most)
    return refuse("'{}' is not a whole number from {} to {}", text, range.least,
                  range.most);
  return *value;
}

Result<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::array<std::string_view, 5> kPrefixes{"", "k", "m", "g", "t"};
  const std::optional<Quantity> quantity = split(text);
  if (quantity && quantity->unit.empty() && quantity->value > 0)
    return refuse("the size '{0}' has no unit; write {0}GiB, {0}M or {0}B", text);
  for (std::size_t power = 0; quantity && power < kPrefixes.size(); ++power) {
    const std::string prefix(kPrefixes[power]);
    if (quantity->unit != prefix && quantity->unit != prefix + "b" &&
        (prefix.empty() || quantity->unit != prefix + "ib"))
      continue;
    const double bytes = std::ldexp(quantity->value, static_cast<int>(10 * power));
    if (bytes < 0x1p63)
      return static_cast<std::uint64_t>(bytes);
  }
  return refuse("'{}' is not a size; write 512M, 1.5G or 10GiB", text);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits{
      {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}}};
  constexpr double kCentury = 8.64e7 * 365.25 * 100;
  const std::optional<Quantity> quantity = split(text);
  for (const auto& [unit, factor] : kUnits) {
    if (!quantity || quantity->unit != unit)
      continue;
    const double value = quantity->value * factor;
    if (value <= kCentury)
      return std::chrono::milliseconds(std::llround(value));
  }
  return refuse("'{}' is not a duration; write 250ms, 30s, 5m, 12h or 7d", text);
}

Result<std::chrono::milliseconds> parse_age(std::string_view text) {
  const std::optional<Quantity> quantity = split(text);
  if (quantity && quantity->unit.empty() && quantity->value > 0)
    return refuse("the duration '{0}' has no unit; write {0}d, {0}h or {0}s", text);
  return parse_duration(text);
}

Result<std::chrono::milliseconds> parse_time_limit(std::string_view text) {
  const auto limit = KILN_TRY(parse_duration(text));
  if (limit.count() == 0)
    return refuse("a time limit of '{}' leaves no time to build", text);
  return limit;
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024)
    return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return value < 9.95 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                      : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string format_duration(std::chrono::milliseconds duration) {
  const auto ms = static_cast<double>(duration.count());
  if (ms < 1000)
    return fmt::format("{:.0f} ms", ms);
  if (ms < 9950)
    return fmt::format("{:.1f} s", ms / 1e3);
  if (ms < 9e4)
    return fmt::format("{:.0f} s", ms / 1e3);
  if (ms < 5.4e6)
    return fmt::format("{:.0f} min", ms / 6e4);
  if (ms < 1.296e8)
    return fmt::format("{:.0f} h", ms / 3.6e6);
  return fmt::format("{:.0f} d", ms / 8.64e7);
}

std::string format_time(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

}  // namespace kiln
