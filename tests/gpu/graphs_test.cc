// Kernels in CUDA graphs: captured, nothing runs; launched, the result is the same.

#include "tests/gpu/gpu_test.h"
#include "tests/gpu/graph.h"

namespace kiln::gpu_test {
namespace {

class GpuGraphs : public GpuTest {};

TEST_F(GpuGraphs, ACapturedLaunchRunsOnceForEachLaunchOfTheGraph) {
  const Device& device = devices().at(0);
  const OnDevice scope(device.ordinal);
  const Kernel kernel = get(source(kAddSource), device);
  const DeviceArray<float> x(1000);
  const Stream stream;
  const Graph graph(stream, [&] {
    expect_done(kernel.launch(Geometry{.grid = {4, 1, 1}, .block = {256, 1, 1}},
                              stream.handle(), x.data(), 1000, 1.5F));
  });
  const std::vector<float> captured = x.download();
  graph.launch(stream);
  graph.launch(stream);
  stream.synchronize();
  const std::vector<float> launched = x.download();
  EXPECT_THAT(captured, Each(0.0F));
  EXPECT_THAT(launched, Each(3.0F));
}

TEST_F(GpuGraphs, AKernelThatIsBuiltAndLoadedInTheMiddleOfACaptureDoesNotEndIt) {
  const Device& device = devices().at(0);
  const OnDevice scope(device.ordinal);
  const DeviceArray<float> x(64);
  const Stream stream;
  const Graph graph(stream, [&] {
    const Kernel late = get(source(std::string(kAddSource) + "// late\n"), device);
    expect_done(late.launch(Geometry{.block = {64, 1, 1}}, stream.handle(), x.data(),
                            64, 1.0F));
  });
  graph.launch(stream);
  graph.launch(stream);
  stream.synchronize();
  const std::vector<float> launched = x.download();
  EXPECT_THAT(launched, Each(2.0F));
}

TEST_F(GpuGraphs, ATemplatesKernelGivesTheSameBitsInAGraph) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kCols = 1000;
  const Device& device = devices().at(0);
  const OnDevice scope(device.ordinal);
  const Kernel kernel = get({"scaled_softmax_fwd", {{"dtype", "f32"}}}, device);
  const auto geometry = kernel.geometry({{"rows", kRows}, {"cols", kCols}});
  std::vector<float> numbers(kRows * kCols);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(i * 7919 % 1009) / 100.0F;
  const DeviceArray<float> in{std::span<const float>(numbers)};
  const DeviceArray<float> direct(numbers.size());
  const DeviceArray<float> repeated(numbers.size());
  const Stream stream;
  const auto launch_into = [&](float* out) {
    expect_done(
        kernel.launch(geometry, stream.handle(), out, in.data(), 0.5F, kRows, kCols));
  };
  launch_into(direct.data());
  const Graph graph(stream, [&] { launch_into(repeated.data()); });
  graph.launch(stream);
  graph.launch(stream);
  stream.synchronize();
  const std::vector<float> want = direct.download();
  const std::vector<float> got = repeated.download();
  EXPECT_EQ(got, want);
  EXPECT_NE(got.at(0), 0.0F);
}

}  // namespace
}  // namespace kiln::gpu_test
