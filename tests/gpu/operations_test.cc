// Operations as a program calls them: on the device of the stream, with errors before
// anything is built, and in graphs.

#include "tests/gpu/gpu_test.h"
#include "tests/gpu/graph.h"

namespace kiln::gpu_test {
namespace {

using ops::DType;
using testing::HasSubstr;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 24;

ops::SoftmaxForward softmax(float* y, const float* x) {
  return {.dtype = DType::kF32, .y = y, .x = x, .sq = kRows, .skv = kCols};
}

class GpuOperations : public GpuTest {
 protected:
  static std::vector<float> ramp() {
    std::vector<float> numbers(kRows * kCols);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(i % 7);
    return numbers;
  }
  static void expect_rows_that_sum_to_one(const std::vector<float>& y) {
    for (std::size_t row = 0; row < kRows; ++row) {
      float sum = 0;
      for (std::size_t j = 0; j < kCols; ++j) sum += y[row * kCols + j];
      EXPECT_NEAR(sum, 1.0F, 1e-5F) << "row " << row;
    }
  }
};

TEST_F(GpuOperations, GoToTheDeviceOfTheirStreamWhateverIsCurrent) {
  std::vector<std::vector<float>> results;
  for (const Device& device : devices()) {
    const OnDevice scope(device.ordinal);
    const DeviceArray<float> x{std::span<const float>(ramp())};
    const DeviceArray<float> y(kRows * kCols);
    const Stream stream;
    {
      const OnDevice other(devices().back().ordinal);
      const auto found = service().device_of(stream.handle());
      ASSERT_TRUE(found) << found.error().message;
      EXPECT_EQ(*found, device);
      expect_done(ops::softmax_forward(service(), stream.handle(),
                                       softmax(y.data(), x.data())));
    }
    stream.synchronize();
    results.push_back(y.download());
  }
  KILN_SKIP_NUMBERS_IF_SIMULATED();
  for (const auto& y : results) expect_rows_that_sum_to_one(y);
}

TEST_F(GpuOperations, GoToTheCurrentDeviceInTheDefaultStream) {
  for (const Device& device : devices()) {
    const OnDevice scope(device.ordinal);
    const DeviceArray<float> x{std::span<const float>(ramp())};
    const DeviceArray<float> y(kRows * kCols);
    EXPECT_EQ(service().device_of(nullptr).value(), device);
    expect_done(ops::softmax_forward(service(), nullptr, softmax(y.data(), x.data())));
    OnDevice::synchronize();
  }
}

TEST_F(GpuOperations, AskForAStreamWhereNoContextIsCurrentAndDevicesAreMany) {
  const auto found = service().device_of(nullptr);
  if (devices().size() == 1) {
    EXPECT_EQ(found.value(), devices().front());
    return;
  }
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(found.error().message, HasSubstr("pass a stream"));
}

TEST_F(GpuOperations, RefuseWrongArgumentsBeforeAKernelIsLookedFor) {
  const OnDevice scope(devices().front().ordinal);
  const Statistics before = service().statistics();
  const auto refused = ops::softmax_forward(
      service(), nullptr, {.dtype = DType::kF16, .sq = 3, .skv = 5000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "softmax_forward: y is null");
  EXPECT_EQ(service().statistics(), before);
}

TEST_F(GpuOperations, OfNothingLaunchNothing) {
  const OnDevice scope(devices().front().ordinal);
  const Statistics before = service().statistics();
  expect_done(ops::softmax_forward(service(), nullptr,
                                   {.dtype = DType::kF16, .sq = 0, .skv = 5000}));
  EXPECT_EQ(service().statistics(), before);
}

TEST_F(GpuOperations, AreCapturedAfterTheyWerePrepared) {
  const Device& device = devices().front();
  const OnDevice scope(device.ordinal);
  const DeviceArray<float> x{std::span<const float>(ramp())};
  const DeviceArray<float> y(kRows * kCols);
  const Stream stream;
  expect_done(ops::prepare(service(), device, softmax(nullptr, nullptr)));
  const Statistics prepared = service().statistics();
  const Graph graph(stream, [&] {
    expect_done(
        ops::softmax_forward(service(), stream.handle(), softmax(y.data(), x.data())));
  });
  EXPECT_EQ(service().statistics().loaded, prepared.loaded);
  EXPECT_EQ(service().statistics().memory_hits, prepared.memory_hits + 1);
  graph.launch(stream);
  stream.synchronize();
  const std::vector<float> result = y.download();
  KILN_SKIP_NUMBERS_IF_SIMULATED();
  expect_rows_that_sum_to_one(result);
}

// Two launches, the second with another entry point of the same kernel.
TEST_F(GpuOperations, OfTwoLaunchesAreCapturedWhole) {
  const Device& device = devices().front();
  const OnDevice scope(device.ordinal);
  ops::RmsNormBackward args{.dtype = DType::kF32, .rows = kRows, .cols = kCols};
  args.workspace_bytes = ops::rmsnorm_backward_workspace_bytes(args, device).value();
  expect_done(ops::prepare(service(), device, args));
  const DeviceArray<float> dy{std::span<const float>(ramp())};
  const DeviceArray<float> x{std::span<const float>(ramp())};
  const DeviceArray<float> weight{std::vector<float>(kCols, 0.5F)};
  const DeviceArray<float> rstd{std::vector<float>(kRows, 2.0F)};
  const DeviceArray<std::byte> workspace(args.workspace_bytes);
  args.dy = dy.data();
  args.x = x.data();
  args.weight = weight.data();
  args.rstd = rstd.data();
  args.workspace = workspace.data();
  const Stream stream;
  std::vector<std::vector<float>> results;
  for (const bool captured : {false, true}) {
    const DeviceArray<float> dx(kRows * kCols);
    const DeviceArray<float> dweight(kCols);
    args.dx = dx.data();
    args.dweight = dweight.data();
    const auto start = [&] {
      expect_done(ops::rmsnorm_backward(service(), stream.handle(), args));
    };
    if (captured)
      Graph(stream, start).launch(stream);
    else
      start();
    stream.synchronize();
    results.push_back(dx.download());
    results.push_back(dweight.download());
  }
  KILN_SKIP_NUMBERS_IF_SIMULATED();
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
  EXPECT_NE(results[1], std::vector<float>(kCols, 0.0F));
}

}  // namespace
}  // namespace kiln::gpu_test
