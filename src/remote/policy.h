// The time and the chance that the rules of this folder are given. They ask no clock
// and no generator of their own, so that tests and the simulation run them in virtual
// time.

#pragma once

#include <chrono>
#include <functional>
#include <random>

namespace kiln::remote {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// A number from 0 to below 1, evenly.
using Random = std::function<double()>;

/// This machine's. Thread safety: may be called concurrently.
[[nodiscard]] inline Random machine_random() {
  return [] {
    thread_local std::mt19937_64 engine{std::random_device{}()};
    return std::uniform_real_distribution<double>()(engine);
  };
}

/// `duration` times a factor, for jitter.
[[nodiscard]] inline Duration scaled(Duration duration, double factor) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(duration) *
                                              factor);
}

}  // namespace kiln::remote
