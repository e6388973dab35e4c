// How fast a kernel moves memory beside a copy of as many bytes. Printed, never judged.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tests/gpu/gpu_test.h"

namespace kiln::gpu_test {
namespace {

class Event {
 public:
  Event() { must(driver().cuEventCreate(&handle_, CU_EVENT_DEFAULT), "cuEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { std::ignore = driver().cuEventDestroy(handle_); }
  void record(const Stream& stream) const {
    must(driver().cuEventRecord(handle_, stream.handle()), "cuEventRecord");
  }
  [[nodiscard]] float ms_since(const Event& earlier) const {
    must(driver().cuEventSynchronize(handle_), "cuEventSynchronize");
    float ms = 0;
    must(driver().elapsed_ms(&ms, earlier.handle_, handle_), "cuEventElapsedTime");
    return ms;
  }

 private:
  CUevent handle_ = nullptr;
};

/// Of 20 runs of `start`, each by itself, after three that do not count.
template <typename Start>
float median_ms(const Stream& stream, const Start& start) {
  constexpr int kRuns = 20;
  constexpr int kUncounted = 3;
  const Event before;
  const Event after;
  std::vector<float> times;
  for (int i = 0; i < kUncounted + kRuns; ++i) {
    before.record(stream);
    start();
    after.record(stream);
    const float ms = after.ms_since(before);
    if (i >= kUncounted)
      times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

class GpuBandwidth : public GpuTest {};

TEST_F(GpuBandwidth, OfScaledSoftmaxFwdInBf16BesideACopy) {
  if (driver().is_simulated)
    GTEST_SKIP() << "the simulated driver's time is none";
  struct Size {
    std::int64_t rows;
    std::int64_t cols;
    const char* max_cols;
  };
  // The second tensor is larger than any cache.
  constexpr std::array<Size, 3> kSizes{
      {{16384, 1024, "1024"}, {262144, 1024, "1024"}, {16384, 8192, "any"}}};
  for (const Device& device : device_of_each_kind()) {
    fmt::print("device {} ({})\n", device.ordinal, device.name);
    const OnDevice scope(device.ordinal);
    const Stream stream;
    for (const Size& size : kSizes) {
      const std::int64_t rows = size.rows;
      const std::int64_t cols = size.cols;
      const auto elements = static_cast<std::size_t>(rows * cols);
      const DeviceArray<std::uint16_t> in(elements);
      const DeviceArray<std::uint16_t> out(elements);
      const Kernel kernel =
          get({"scaled_softmax_fwd", {{"dtype", "bf16"}, {"max_cols", size.max_cols}}},
              device);
      const auto geometry = kernel.geometry({{"rows", rows}, {"cols", cols}});
      const float of_kernel = median_ms(stream, [&] {
        expect_done(kernel.launch(geometry, stream.handle(), out.data(), in.data(),
                                  0.125F, rows, cols));
      });
      const float of_copy = median_ms(stream, [&] {
        must(driver().cuMemcpyDtoDAsync(out.address(), in.address(), in.size_bytes(),
                                        stream.handle()),
             "cuMemcpyDtoDAsync");
      });
      const double moved_gb = 2e-9 * static_cast<double>(in.size_bytes());
      const auto per_second = [&](float ms) { return moved_gb / (1e-3 * ms); };
      fmt::print("  {}x{} max_cols={}: {:.0f} GB/s, a copy {:.0f} GB/s, {:.2f} of it\n",
                 rows, cols, size.max_cols, per_second(of_kernel), per_second(of_copy),
                 of_copy / of_kernel);
    }
  }
}

}  // namespace
}  // namespace kiln::gpu_test
