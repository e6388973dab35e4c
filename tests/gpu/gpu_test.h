// Kiln's library on the devices of this machine, as a program links it. A test is
// skipped where there is no device.

#pragma once

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kiln/kiln.h"
#include "tests/gpu/driver.h"
#include "tests/gpu/on_device.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::gpu_test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (find_driver() == nullptr)
      GTEST_SKIP() << why_no_driver();
    ASSERT_TRUE(opened()) << opened().error().message;
    if (devices().empty())
      GTEST_SKIP() << "the CUDA driver has no device";
  }

  /// One for the process. Its cache is KILN_CACHE_DIR, else goes with the process.
  [[nodiscard]] static Service& service() { return *opened(); }
  [[nodiscard]] static const std::vector<Device>& devices() {
    return service().devices();
  }
  /// The first device of each compute capability.
  [[nodiscard]] static std::vector<Device> device_of_each_kind() {
    std::vector<Device> some;
    for (const Device& device : devices()) {
      const auto same = [&](const Device& other) {
        return other.capability == device.capability;
      };
      if (std::none_of(some.begin(), some.end(), same))
        some.push_back(device);
    }
    return some;
  }

  /// Throws what get() failed with.
  [[nodiscard]] static Kernel get(const Request& request, const Device& device) {
    auto kernel = service().get(request, device);
    if (!kernel)
      throw std::runtime_error(kernel.error().message);
    return *std::move(kernel);
  }

  [[nodiscard]] static Request source(std::string text) {
    return Request::from_source({.source = std::move(text)});
  }

  static void expect_done(const Result<void>& launched) {
    EXPECT_TRUE(launched) << launched.error().message;
  }

  /// Those of service().
  [[nodiscard]] static Options options() {
    static const test::TempDir temporary;
    Options options;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no test sets it
    if (std::getenv("KILN_CACHE_DIR") == nullptr)
      options.cache_dir = temporary.path() / "cache";
    if (options.cache_dir && driver().is_simulated)
      driver().read_ptx_from(options.cache_dir->c_str());
    return options;
  }

 private:
  [[nodiscard]] static Result<Service>& opened() {
    static Result<Service> once = Service::open(options());
    return once;
  }
};

/// x[i] += by for n elements.
inline constexpr const char* kAddSource =
    "extern \"C\" __global__ void add(float* x, int n, float by) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) x[i] += by;\n"
    "}\n";

}  // namespace kiln::gpu_test
