// A test of a kernel with GoogleTest, for machines without a GPU.

#include <gtest/gtest.h>
#include <kiln/kiln.h>
#include <simulated_device.h>

#include <vector>

namespace {

constexpr const char* kSource = R"cuda(
extern "C" __global__ void reverse(float* x, int n) {
  __shared__ float kept[64];
  if (threadIdx.x < n)
    kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n)
    x[threadIdx.x] = kept[n - 1 - threadIdx.x];
}
)cuda";

class ReverseTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(kiln_use_simulated_device("9.0"), 0); }
  void TearDown() override {
    EXPECT_STREQ(kiln_take_report(), "");  // no race, and nothing read before it is set
  }
};

TEST_F(ReverseTest, TurnsABlockAround) {
  auto service = kiln::Service::open();
  ASSERT_TRUE(service) << service.error().message;
  const auto device = service->device();
  ASSERT_TRUE(device) << device.error().message;
  const auto kernel = service->get(
      kiln::Request::from_source({.source = kSource, .file_name = "reverse.cu"}),
      *device);
  ASSERT_TRUE(kernel) << kernel.error().message;
  std::vector<float> x{1, 2, 3, 4, 5};
  kiln::Geometry geometry;
  geometry.block[0] = 64;
  const auto launched =
      kernel->launch(geometry, nullptr, x.data(), static_cast<int>(x.size()));
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_EQ(x, (std::vector<float>{5, 4, 3, 2, 1}));
}

}  // namespace
