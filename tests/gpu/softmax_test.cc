// The softmax kernels on real devices against double: the reference, the inputs and the
// bounds of the tests on a CPU (tests/integration/softmax).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <tuple>

#include "tests/gpu/device_copies.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/stand_in.h"
#include "tests/integration/softmax/errors.h"
#include "tests/integration/softmax/inputs.h"
#include "tests/support/tensors/guarded_tensor.h"

namespace kiln::gpu_test::softmax_on_device {
namespace {

using softmax_test::I64;
using softmax_test::Kind;
using softmax_test::Shape;
template <typename T>
using Tensor = test::GuardedTensor<T>;

struct Setting {
  float scale = 0.125F;
  std::size_t offset = 0;  // of all tensors from a 16-byte boundary, in elements
  bool one_mask = false;   // for the whole batch
};

/// `x` is dy for a backward kernel, whose y a forward kernel might have written.
template <typename T>
class Problem {
 public:
  Problem(const Kernel& kernel, const Shape& shape, const Setting& setting)
      : kernel_(kernel),
        shape_(shape),
        setting_(setting),
        kind_(kind_of(kernel.entry_point())),
        is_forward_(kernel.entry_point().ends_with("_fwd")),
        x_("x", shape.size(), place()),
        y_("y", shape.size(), place()),
        mask_("mask", mask_size(), place()) {
    softmax_test::fill_mask({&mask_.data()->bits, mask_.size()}, shape.cols);
    test::fill_normally(std::span(x_.data(), x_.size()));
    if (!is_forward_) {
      softmax_test::fill_y(y_.data(), x_.data(), shape,
                           [this](I64 row, I64 j) { return visible(row, j); });
    }
  }

  /// Runs it and compares; false where nothing computed that could be compared.
  [[nodiscard]] bool run_and_check() const {
    const bool computes = !driver().is_simulated || stands_in_for(kernel_);
    Tensor<T> out("out", shape_.size(), place());
    const test::ReadOnly inputs(x_, y_, mask_);
    const DeviceCopies copies;
    const auto geometry =
        kernel_.geometry({{"rows", shape_.rows()}, {"cols", shape_.cols}});
    const Stream stream;
    const auto done = launch(geometry, stream.handle(),
                             {copies.moved(out.data()), copies.moved(x_.data()),
                              copies.moved(y_.data()), copies.moved(mask_.data())});
    EXPECT_TRUE(done) << done.error().message;
    stream.synchronize();
    copies.take_back();
    if (computes && done) {
      EXPECT_LE(error(out), softmax_test::error_bound<T>(is_forward_));
    }
    return computes;
  }

 private:
  static Kind kind_of(const std::string& entry_point) {
    return entry_point.find("upper_triang") != std::string::npos ? Kind::kCausal
           : entry_point.find("masked") != std::string::npos     ? Kind::kMasked
                                                                 : Kind::kPlain;
  }
  [[nodiscard]] test::Place place() const { return {.offset = setting_.offset}; }
  [[nodiscard]] std::size_t mask_size() const {
    const I64 masks = setting_.one_mask ? 1 : shape_.batch;
    return static_cast<std::size_t>(masks * shape_.sq * shape_.cols);
  }
  [[nodiscard]] I64 mask_stride() const {
    return setting_.one_mask ? 0 : shape_.sq * shape_.cols;
  }
  [[nodiscard]] bool visible(I64 row, I64 j) const {
    return softmax_test::is_visible(kind_, shape_, {&mask_.data()->bits, mask_stride()},
                                    row, j);
  }

  struct Tensors {
    void* out;
    const void* x;
    const void* y;
    const void* mask;
  };

  [[nodiscard]] Result<void> launch(const Result<Geometry>& geometry, CUstream stream,
                                    const Tensors& tensors) const {
    const auto [batch, heads, sq, cols] = shape_;
    const auto [out, x, y, mask] = tensors;
    const I64 rows = shape_.rows();
    const float scale = setting_.scale;
    if (kind_ == Kind::kCausal) {
      return is_forward_
                 ? kernel_.launch(geometry, stream, out, x, scale, rows, sq, cols)
                 : kernel_.launch(geometry, stream, out, x, y, scale, rows, sq, cols);
    }
    if (!is_forward_)
      return kernel_.launch(geometry, stream, out, x, y, scale, rows, cols);
    if (kind_ == Kind::kMasked) {
      return kernel_.launch(geometry, stream, out, x, mask, scale, rows, heads, sq,
                            cols, mask_stride());
    }
    return kernel_.launch(geometry, stream, out, x, scale, rows, cols);
  }

  [[nodiscard]] double error(const Tensor<T>& got) const {
    double worst = 0;
    for (I64 row = 0; row < shape_.rows() && !testing::Test::HasFailure(); ++row) {
      SCOPED_TRACE(testing::Message() << "row " << row);
      const I64 at = row * shape_.cols;
      const T* const x = x_.data() + at;
      worst = std::max(
          worst, is_forward_
                     ? softmax_test::forward_error(
                           x, got.data() + at, shape_.cols, setting_.scale,
                           [&](I64 j) { return visible(row, j); })
                     : softmax_test::backward_error(y_.data() + at, x, got.data() + at,
                                                    shape_.cols, setting_.scale));
    }
    return worst;
  }

  const Kernel& kernel_;
  const Shape shape_;
  const Setting setting_;
  const Kind kind_;
  const bool is_forward_;
  Tensor<T> x_;
  Tensor<T> y_;
  Tensor<softmax_test::Byte> mask_;
};

using KernelAndType = std::tuple<std::string, std::string>;

class GpuSoftmax : public GpuTest, public testing::WithParamInterface<KernelAndType> {
 protected:
  [[nodiscard]] static Request request(const std::string& max_cols) {
    const auto [kernel, dtype] = GetParam();
    return {kernel, {{"dtype", dtype}, {"max_cols", max_cols}}};
  }

  // Values of max_cols; where nothing is fast, two that are compiled for the CPU too.
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

  void check(const Kernel& kernel, const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message() << shape << " scale " << setting.scale << " offset "
                                    << setting.offset);
    test::with_type(std::get<1>(GetParam()), [&]<typename T>(std::type_identity<T>) {
      compared_ &= Problem<T>(kernel, shape, setting).run_and_check();
    });
  }

  bool compared_ = true;  // every result so far
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
      const bool is_long = cols > 5000;
      check(
          kernel,
          {.batch = is_long ? 1 : 2, .heads = 2, .sq = is_long ? 1 : 7, .cols = cols});
    }
    for (const I64 sq : {1, 5, 32, 41}) {  // fewer, as many and more than keys
      for (const I64 cols : {8, 31, 32})
        check(kernel, {.batch = 2, .sq = sq, .cols = cols});
    }
    check(kernel, {.batch = 3, .heads = 2, .sq = 6, .cols = 32}, {.one_mask = true});
    check(kernel, {.sq = 3, .cols = 32}, {.offset = 1});
    for (const float scale : {-1.0F, 0.0F, 3.7F, 1000.0F})
      check(kernel, {.sq = 5, .cols = 31}, {.scale = scale});
    if (!driver().is_simulated)  // more rows than blocks run at once
      check(kernel, {.batch = 4, .heads = 8, .sq = 1023, .cols = 32});
  });
  if (!compared_)
    GTEST_SKIP() << kNotCompared;
}

}  // namespace
}  // namespace kiln::gpu_test::softmax_on_device
