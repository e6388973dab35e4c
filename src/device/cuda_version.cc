#include "device/cuda_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "util/text.h"
#include "util/try.h"

namespace kiln::device {
namespace {

// All of `text` as a number below 1000.
bool read_number(std::string_view text, int& number) {
  if (text.empty() || text.size() > 3 || text.front() < '0' || text.front() > '9')
    return false;
  const auto read = number_of<int>(text);
  number = read.value_or(0);
  return read.has_value();
}

// Source: PTX ISA, "PTX Release History". From 9.0 on the minor versions are equal.
constexpr auto kPtxVersions = std::to_array<std::pair<CudaVersion, CudaVersion>>({
    {{4, 2}, {7, 0}},  {{4, 3}, {7, 5}},  {{5, 0}, {8, 0}},  {{6, 0}, {9, 0}},
    {{6, 1}, {9, 1}},  {{6, 2}, {9, 2}},  {{6, 3}, {10, 0}}, {{6, 4}, {10, 1}},
    {{6, 5}, {10, 2}}, {{7, 0}, {11, 0}}, {{7, 1}, {11, 1}}, {{7, 2}, {11, 2}},
    {{7, 3}, {11, 3}}, {{7, 4}, {11, 4}}, {{7, 5}, {11, 5}}, {{7, 6}, {11, 6}},
    {{7, 7}, {11, 7}}, {{7, 8}, {11, 8}}, {{8, 0}, {12, 0}}, {{8, 1}, {12, 1}},
    {{8, 2}, {12, 2}}, {{8, 3}, {12, 3}}, {{8, 4}, {12, 4}}, {{8, 5}, {12, 5}},
    {{8, 6}, {12, 7}}, {{8, 7}, {12, 8}}, {{8, 8}, {12, 9}},
});

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
    return refuse("'{}' is not a CUDA version; write 13.0", text);
  }
  return version;
}

CudaVersion cuda_version_of_driver(int value) {
  return {value / 1000, value % 1000 / 10};
}

int driver_value(CudaVersion version) {
  return 1000 * version.major + 10 * version.minor;
}

std::optional<CudaVersion> cuda_version_of_ptx(CudaVersion isa) {
  if (isa.major == 9)
    return CudaVersion{13, isa.minor};
  const auto* const found =
      std::ranges::find(kPtxVersions, isa, &std::pair<CudaVersion, CudaVersion>::first);
  return found == kPtxVersions.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace kiln::device
