// How long the builds of a run will still take, from what such builds took.

#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kiln::tools {

/// Thread safety: none.
class BuildTimes {
 public:
  using Time = std::chrono::milliseconds;

  /// A build of the kernel `name` took so long in an earlier run.
  void remember(const std::string& name, Time took) {
    kernels_[name].earlier.add(took);
  }
  /// One more build of `name` is to come.
  void expect(const std::string& name) { ++kernels_[name].to_come; }
  /// One of those has ended.
  void finish(const std::string& name, Time took) {
    Kernel& kernel = kernels_[name];
    kernel.to_come = std::max<std::int64_t>(0, kernel.to_come - 1);
    kernel.now.add(took);
  }

  /// Of all builds that have not ended, `at_once` at a time. A kernel's builds take
  /// what they took in this run, else earlier; one that was never built what the others
  /// take on average. nullopt: nothing is known yet.
  [[nodiscard]] std::optional<Time> left(std::uint64_t at_once) const {
    double known_ms = 0;  // of what is to come
    double means = 0;
    std::int64_t kinds = 0;
    std::int64_t unknown = 0;
    for (const auto& [name, kernel] : kernels_) {
      const Mean& mean = kernel.now.count > 0 ? kernel.now : kernel.earlier;
      if (mean.count == 0) {
        unknown += kernel.to_come;
        continue;
      }
      known_ms += mean.ms() * static_cast<double>(kernel.to_come);
      means += mean.ms();
      ++kinds;
    }
    if (kinds == 0)
      return std::nullopt;
    const double all_ms =
        known_ms + means / static_cast<double>(kinds) * static_cast<double>(unknown);
    return Time(std::llround(all_ms /
                             static_cast<double>(std::max<std::uint64_t>(1, at_once))));
  }

 private:
  struct Mean {
    void add(Time took) {
      sum_ms += took.count();
      ++count;
    }
    [[nodiscard]] double ms() const {
      return static_cast<double>(sum_ms) / static_cast<double>(count);
    }

    std::int64_t sum_ms = 0;
    std::int64_t count = 0;
  };
  struct Kernel {
    Mean earlier;
    Mean now;
    std::int64_t to_come = 0;
  };

  std::map<std::string, Kernel> kernels_;
};

}  // namespace kiln::tools
