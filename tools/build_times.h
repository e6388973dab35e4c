// How long the builds of a run will still take, from what such builds took.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kiln::tools {

/// Thread safety: none.
class BuildTimes {
 public:
  /// A build of the kernel `name` took so long in an earlier run.
  void remember(const std::string& name, std::chrono::milliseconds took);
  /// One more build of `name` is to come.
  void expect(const std::string& name);
  /// One of those has ended.
  void finish(const std::string& name, std::chrono::milliseconds took);

  /// Of all builds that have not ended, `at_once` at a time. A kernel's builds take
  /// what they took in this run, else earlier; one that was never built what the others
  /// take on average. nullopt: nothing is known yet.
  [[nodiscard]] std::optional<std::chrono::milliseconds> left(
      std::uint64_t at_once) const;

 private:
  struct Mean {
    std::int64_t sum_ms = 0;
    std::int64_t count = 0;
  };
  struct Kernel {
    Mean earlier;
    Mean now;
    std::int64_t to_come = 0;
  };
  [[nodiscard]] static std::optional<double> mean_of(const Kernel& kernel);

  std::map<std::string, Kernel> kernels_;
};

}  // namespace kiln::tools
