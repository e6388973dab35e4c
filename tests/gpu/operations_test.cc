// Operations as a program calls them: on the device that is asked for, with errors
// before anything is built, and in graphs.

#include <thread>

#include "tests/gpu/gpu_test.h"
#include "tests/gpu/graph.h"
#include "tests/support/is_error.h"

namespace kiln::gpu_test {
namespace {

using ops::DType;

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

TEST_F(GpuOperations, GoToTheirDeviceWhateverIsCurrent) {
  std::vector<std::vector<float>> results;
  for (const Device& device : devices()) {
    const OnDevice scope(device.ordinal);
    const DeviceArray<float> x{std::span<const float>(ramp())};
    const Stream stream;
    for (CUstream where : {stream.handle(), CUstream{}}) {
      const DeviceArray<float> y{std::vector<float>(kRows * kCols, -1.0F)};
      {
        const OnDevice other(devices().back().ordinal);
        expect_done(ops::softmax_forward(service(), device, where,
                                         softmax(y.data(), x.data())));
        CUdevice current = -1;
        EXPECT_EQ(driver().cuCtxGetDevice(&current), CUDA_SUCCESS);
        EXPECT_EQ(current, devices().back().ordinal) << "the caller's is not current";
      }
      OnDevice::synchronize();
      results.push_back(y.download());
    }
  }
  for (const auto& y : results) expect_rows_that_sum_to_one(y);
}

TEST_F(GpuOperations, NeedNoCurrentContext) {
  const Device& device = devices().back();
  const OnDevice scope(device.ordinal);
  const DeviceArray<float> x{std::span<const float>(ramp())};
  const DeviceArray<float> y(kRows * kCols);
  const ops::SoftmaxForward args = softmax(y.data(), x.data());
  std::thread([&] {  // where none is
    expect_done(ops::softmax_forward(service(), device, nullptr, args));
    CUcontext current = nullptr;
    EXPECT_EQ(driver().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr);
  })
      .join();
  OnDevice::synchronize();
}

TEST_F(GpuOperations, RefuseAStreamOfAnotherDevice) {
  if (devices().size() < 2)
    GTEST_SKIP() << "one device";
  const OnDevice scope(devices().front().ordinal);
  const Stream stream;
  const auto refused = ops::softmax_forward(
      service(), devices().back(), stream.handle(),
      {.dtype = DType::kF16, .sq = 0, .skv = 5000});  // even of nothing
  EXPECT_THAT(refused, test::IsError(ErrorCode::kInvalidArgument,
                                     HasSubstr("the stream is of device 0")));
}

TEST_F(GpuOperations, TheDeviceOfADefaultStreamIsTheCurrentOneOfAnotherItsOwn) {
  for (const Device& device : devices()) {
    const OnDevice scope(device.ordinal);
    const Stream stream;
    EXPECT_EQ(service().device_of(nullptr).value(), device);
    const OnDevice other(devices().back().ordinal);
    EXPECT_EQ(service().device_of(stream.handle()).value(), device);
  }
  const auto found = service().device_of(nullptr);
  if (devices().size() == 1) {
    EXPECT_EQ(found.value(), devices().front());
    return;
  }
  EXPECT_THAT(found,
              test::IsError(ErrorCode::kInvalidArgument, HasSubstr("pass a stream")));
}

TEST_F(GpuOperations, ADeviceThatThereIsNotIsAnErrorWithHowManyThereAre) {
  EXPECT_EQ(service().device().value(), devices().front());
  EXPECT_THAT(service().device(static_cast<int>(devices().size())),
              test::IsError(ErrorCode::kInvalidArgument, HasSubstr("from 0 on")));
  EXPECT_FALSE(service().device(-1));
}

TEST_F(GpuOperations, RefuseWrongArgumentsBeforeAKernelIsLookedFor) {
  const Device& device = devices().front();
  const OnDevice scope(device.ordinal);
  const Statistics before = service().statistics();
  const auto refused = ops::softmax_forward(
      service(), device, nullptr, {.dtype = DType::kF16, .sq = 3, .skv = 5000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "softmax_forward: y is null");
  EXPECT_EQ(service().statistics(), before);
}

TEST_F(GpuOperations, OfNothingLaunchNothing) {
  const Device& device = devices().front();
  const OnDevice scope(device.ordinal);
  const Statistics before = service().statistics();
  expect_done(ops::softmax_forward(service(), device, nullptr,
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
    expect_done(ops::softmax_forward(service(), device, stream.handle(),
                                     softmax(y.data(), x.data())));
  });
  EXPECT_EQ(service().statistics().loaded, prepared.loaded);
  EXPECT_EQ(service().statistics().memory_hits, prepared.memory_hits + 1);
  graph.launch(stream);
  stream.synchronize();
  const std::vector<float> result = y.download();
  expect_rows_that_sum_to_one(result);
}

// Two launches, the second with another entry point of the same kernel.
TEST_F(GpuOperations, OfTwoLaunchesAreCapturedWhole) {
  const Device& device = devices().front();
  const OnDevice scope(device.ordinal);
  ops::RmsNormBackward args{.dtype = DType::kF32, .rows = kRows, .cols = kCols};
  args.workspace_bytes = ops::rmsnorm_backward_workspace_bytes(device, args).value();
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
      expect_done(ops::rmsnorm_backward(service(), device, stream.handle(), args));
    };
    if (captured)
      Graph(stream, start).launch(stream);
    else
      start();
    stream.synchronize();
    results.push_back(dx.download());
    results.push_back(dweight.download());
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
  EXPECT_NE(results[1], std::vector<float>(kCols, 0.0F));
}

}  // namespace
}  // namespace kiln::gpu_test
