#include "attention/cudnn_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "util/text.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr int kFirstOfNewForm = 9;
constexpr unsigned kMostMinor = 99;  // two digits each in the encoded form

}  // namespace

std::string to_string(CudnnVersion version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

Result<CudnnVersion> parse_cudnn_version(std::string_view text) {
  std::array<int, 3> parts{};
  const auto dots = static_cast<std::size_t>(std::ranges::count(text, '.'));
  bool good = dots == 1 || dots == 2;
  std::string_view rest = text;
  for (std::size_t i = 0; good && i <= dots; ++i) {
    const auto part = number_of<unsigned>(next_part(rest, "."));
    good = part && *part <= kMostMinor;
    parts[i] = static_cast<int>(part.value_or(0));
  }
  if (!good || parts[0] == 0 || (parts[0] < kFirstOfNewForm && parts[1] > 9))
    return refuse("'{}' is no cuDNN version: write 9.5.0, or 9.5 for that", text);
  return CudnnVersion{parts[0], parts[1], parts[2]};
}

long encoded(CudnnVersion version) {
  const long major = version.major < kFirstOfNewForm ? 1000L : 10000L;
  return version.major * major + version.minor * 100L + version.patch;
}

CudnnVersion decoded(long value) {
  const long major = value < kFirstOfNewForm * 10000L ? 1000L : 10000L;
  return {static_cast<int>(value / major), static_cast<int>(value % major / 100),
          static_cast<int>(value % 100)};
}

}  // namespace kiln::attention
