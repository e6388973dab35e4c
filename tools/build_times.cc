#include "tools/build_times.h"

#include <algorithm>
#include <cmath>

namespace kiln::tools {

using std::chrono::milliseconds;

void BuildTimes::remember(const std::string& name, milliseconds took) {
  Mean& earlier = kernels_[name].earlier;
  earlier.sum_ms += took.count();
  ++earlier.count;
}

void BuildTimes::expect(const std::string& name) {
  ++kernels_[name].to_come;
}

void BuildTimes::finish(const std::string& name, milliseconds took) {
  Kernel& kernel = kernels_[name];
  kernel.to_come = std::max<std::int64_t>(0, kernel.to_come - 1);
  kernel.now.sum_ms += took.count();
  ++kernel.now.count;
}

std::optional<double> BuildTimes::mean_of(const Kernel& kernel) {
  const Mean& mean = kernel.now.count > 0 ? kernel.now : kernel.earlier;
  if (mean.count == 0)
    return std::nullopt;
  return static_cast<double>(mean.sum_ms) / static_cast<double>(mean.count);
}

std::optional<milliseconds> BuildTimes::left(std::uint64_t at_once) const {
  double known_ms = 0;  // of what is to come
  double means = 0;
  std::int64_t kinds = 0;
  std::int64_t unknown = 0;
  for (const auto& [name, kernel] : kernels_) {
    const auto mean = mean_of(kernel);
    if (mean) {
      known_ms += *mean * static_cast<double>(kernel.to_come);
      means += *mean;
      ++kinds;
    } else {
      unknown += kernel.to_come;
    }
  }
  if (kinds == 0)
    return std::nullopt;
  const double all =
      known_ms + means / static_cast<double>(kinds) * static_cast<double>(unknown);
  return milliseconds(
      std::llround(all / static_cast<double>(std::max<std::uint64_t>(1, at_once))));
}

}  // namespace kiln::tools
