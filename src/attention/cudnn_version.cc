#include "attention/cudnn_version.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr int kFirstOfNewForm = 9;
constexpr int kMostMinor = 99;  // two digits each in the encoded form

}  // namespace

std::string to_string(CudnnVersion version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

Result<CudnnVersion> parse_cudnn_version(std::string_view text) {
  std::array<int, 3> parts{};
  std::size_t count = 0;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  bool good = !text.empty();
  while (good && at != end && count < parts.size()) {
    const auto [after, error] = std::from_chars(at, end, parts[count]);
    good = error == std::errc() && *at != '-' && parts[count] <= kMostMinor &&
           (after == end || (*after == '.' && after + 1 != end));
    ++count;
    at = after == end ? end : after + 1;
  }
  if (!good || at != end || count < 2 || parts[0] == 0 ||
      (parts[0] < kFirstOfNewForm && parts[1] > 9))
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
