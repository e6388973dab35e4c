#include "device/cuda_version.h"

#include <fmt/format.h>

#include <charconv>

namespace kiln::device {
namespace {

// All of `text` as a number below 1000.
bool read_number(std::string_view text, int& number) {
  if (text.empty() || text.size() > 3 || text.front() < '0' || text.front() > '9')
    return false;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string to_string(CudaVersion version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

Result<CudaVersion> parse_cuda_version(std::string_view text) {
  CudaVersion version;
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos ||
      !read_number(text.substr(0, dot), version.major) ||
      !read_number(text.substr(dot + 1), version.minor)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a CUDA version; write 13.0", text));
  }
  return version;
}

CudaVersion cuda_version_of_driver(int value) {
  return {value / 1000, value % 1000 / 10};
}

int driver_value(CudaVersion version) {
  return 1000 * version.major + 10 * version.minor;
}

}  // namespace kiln::device
