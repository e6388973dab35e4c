// A service of the library as a program opens it, on simulated devices, with a cache of
// its own and the real NVRTC.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kiln/kiln.h"
#include "tests/support/simulated_driver.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::test {

/// Nothing but KILN_NVRTC of the environment reaches the service.
class LibraryTest : public testing::Test {
 protected:
  [[nodiscard]] Options options(const SimulatedDriver& driver) {
    Options options;
    options.cache_dir = temp_.path() / "cache";
    options.jobs = 2;
    options.driver = driver.path();
    options.on_event = [this](const Event& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
    return options;
  }

  [[nodiscard]] std::optional<Service> open(const SimulatedDriver& driver) {
    return open(options(driver));
  }
  [[nodiscard]] static std::optional<Service> open(const Options& options) {
    auto service = Service::open(options);
    EXPECT_TRUE(service) << service.error().message;
    return service ? std::optional(*std::move(service)) : std::nullopt;
  }

  /// What happened since the last call, in order.
  [[nodiscard]] std::vector<Event> take_events() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  [[nodiscard]] std::vector<Event::Kind> take_kinds() {
    std::vector<Event::Kind> kinds;
    for (const Event& event : take_events()) kinds.push_back(event.kind);
    return kinds;
  }

  /// Compiles in some milliseconds; different for each number.
  [[nodiscard]] static Request small_source(int number = 0) {
    return Request::from_source(
        {.source = "extern \"C\" __global__ void fill(int* out, int n, float scale) {\n"
                   "  if (threadIdx.x < n) out[threadIdx.x] = scale * " +
                   std::to_string(number) + ";\n}\n"});
  }

  TempDir temp_;

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
};

inline const Request kSoftmax{"scaled_softmax_fwd",
                              {{"dtype", "bf16"}, {"max_cols", "128"}}};

}  // namespace kiln::test
