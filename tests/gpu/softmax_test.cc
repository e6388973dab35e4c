// The softmax kernels on real devices against double: the reference, the inputs and the
// bounds of the tests on a CPU (tests/integration/softmax).

#include <fmt/format.h>

#include <limits>
#include <string>
#include <tuple>

#include "tests/gpu/device_copies.h"
#include "tests/gpu/gpu_test.h"
#include "tests/integration/softmax/tensors.h"

namespace kiln::gpu_test::softmax_on_device {
namespace {

using softmax_test::I64;
using softmax_test::Setting;
using softmax_test::Shape;

template <typename T>
void run_and_check(const Kernel& kernel, const Shape& shape, const Setting& setting) {
  const std::string& entry = kernel.entry_point();
  const softmax_test::Tensors<T> tensors(
      {softmax_test::kind_of(entry), entry.ends_with("_fwd")}, shape, setting);
  auto out = tensors.make_out();
  const DeviceCopies copies;
  const auto geometry = kernel.geometry({{"rows", shape.rows()}, {"cols", shape.cols}});
  const Stream stream;
  const auto done = tensors.launch_into(
      out, [&](const auto& pointers) { return copies.moved(pointers); },
      [&](const auto... arguments) {
        const auto started = kernel.launch(geometry, stream.handle(), arguments...);
        stream.synchronize();
        copies.take_back();
        return started;
      });
  EXPECT_TRUE(done) << done.error().message;
  if (done)
    std::ignore = tensors.check(out);
}

using KernelAndType = std::tuple<std::string, std::string>;

class GpuSoftmax : public GpuTest, public testing::WithParamInterface<KernelAndType> {
 protected:
  [[nodiscard]] static Request request(const std::string& max_cols) {
    const auto [kernel, dtype] = GetParam();
    return {kernel, {{"dtype", dtype}, {"max_cols", max_cols}}};
  }

  // Values of max_cols; where nothing is fast, two.
  static std::vector<std::string> classes() {
    if (!driver().is_simulated)
      return {"32", "128", "1024", "4096", "any"};
    const std::string dtype = std::get<1>(GetParam());
    return {dtype == "f16" ? "64" : dtype == "bf16" ? "128" : "512", "any"};
  }

  // On every kind of device, with each class of row length.
  template <typename Check>
  static void for_each_kernel(const Check& check) {
    for (const Device& device : device_of_each_kind()) {
      for (const std::string& max_cols : classes())
        EXPECT_TRUE(service().prefetch(request(max_cols), device));
      const OnDevice scope(device.ordinal);
      for (const std::string& max_cols : classes()) {
        SCOPED_TRACE(fmt::format("max_cols={} on device {}", max_cols, device.ordinal));
        check(get(request(max_cols), device), max_cols == "any"
                                                  ? std::numeric_limits<I64>::max()
                                                  : std::stoll(max_cols));
      }
    }
  }

  void check(const Kernel& kernel, const Shape& shape, Setting setting = {}) {
    setting.offset = setting.offset.value_or(0);
    setting.mask_offset = setting.offset;
    SCOPED_TRACE(testing::Message() << shape << " scale " << setting.scale << " offset "
                                    << *setting.offset);
    test::with_type(std::get<1>(GetParam()),
                    [&]<typename T>() { run_and_check<T>(kernel, shape, setting); });
  }
};

INSTANTIATE_TEST_SUITE_P(
    Kernels, GpuSoftmax,
    testing::Combine(testing::Values("scaled_softmax_fwd", "scaled_softmax_bwd",
                                     "scaled_masked_softmax_fwd",
                                     "scaled_masked_softmax_bwd",
                                     "scaled_upper_triang_masked_softmax_fwd",
                                     "scaled_upper_triang_masked_softmax_bwd"),
                     testing::Values("f16", "bf16", "f32")),
    [](const auto& each) {
      return fmt::format("{}_{}", std::get<0>(each.param), std::get<1>(each.param));
    });

// The mask has wholly masked rows, and so has the triangle where queries outnumber
// keys.
TEST_P(GpuSoftmax, IsRightAtTheEdges) {
  for_each_kernel([this](const Kernel& kernel, I64 max_cols) {
    for (const I64 cols : {1, 2, 7, 31, 32, 33, 64, 127, 128, 1000, 1024, 1027, 4095,
                           4096, 4097, 8200, 24580, 131073}) {
      if (cols > max_cols)
        continue;
      if (cols > 5000)
        check(kernel, {.heads = 2, .cols = cols});
      else if (cols > 2000)
        check(kernel, {.heads = 2, .sq = 3, .cols = cols});
      else
        check(kernel, {.batch = 2, .heads = 2, .sq = 7, .cols = cols});
    }
    for (const I64 sq : {1, 5, 32, 41}) {  // fewer, as many and more than keys
      for (const I64 cols : {8, 31, 32})
        check(kernel, {.batch = 2, .sq = sq, .cols = cols});
    }
    check(kernel, {.batch = 3, .heads = 2, .sq = 6, .cols = 32}, {.mask_batches = 1});
    check(kernel, {.sq = 3, .cols = 32}, {.offset = 1});
    for (const float scale : {-1.0F, 0.0F, 3.7F, 1000.0F})
      check(kernel, {.sq = 5, .cols = 31}, {.scale = scale});
    if (!driver().is_simulated)  // more rows than blocks run at once
      check(kernel, {.batch = 4, .heads = 8, .sq = 1023, .cols = 32});
  });
}

}  // namespace
}  // namespace kiln::gpu_test::softmax_on_device
