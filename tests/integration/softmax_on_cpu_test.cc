// The softmax kernels' own text against double on a CPU: shapes at every edge, masks,
// special values, three orders of the threads. Bounds are those the texts promise.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>

#include "render/catalog.h"
#include "request/selection.h"
#include "tests/integration/softmax_reference.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/kernels.h"

namespace kiln_cpu {
extern const CpuKernels softmax_plain_kernels;
extern const CpuKernels softmax_masked_kernels;
extern const CpuKernels softmax_causal_kernels;
}  // namespace kiln_cpu

namespace kiln::softmax_test {
namespace {

using kiln_cpu::Order;
using I64 = long long;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

enum class Kind { kPlain, kMasked, kCausal };

struct Shape {
  I64 batch = 1;
  I64 heads = 1;
  I64 sq = 1;
  I64 cols = 1;
  [[nodiscard]] I64 rows() const { return batch * heads * sq; }
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(rows() * cols);
  }
};

struct LaunchOptions {
  Order order = Order::kAscending;
  std::uint32_t most_blocks = ~0U;
  I64 mask_batches = 0;  // 0: as many as the batch
};

const render::TemplateCatalog& catalog() {
  static const auto* const kCatalog = new render::TemplateCatalog(
      render::TemplateCatalog::open(templates::embedded()).value());
  return *kCatalog;
}

/// One compiled variant and everything needed to launch it.
class Variant {
 public:
  explicit Variant(const kiln_cpu::CpuKernel& kernel) : entry_(kernel.entry) {
    const auto pattern = request::parse_template_pattern(kernel.variant).value();
    spec_ = catalog().find(pattern.name).value();
    params_ = spec_->canonical(pattern.params).value().values();
    name_ = kernel.variant;
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& dtype() const { return params_.at("dtype"); }
  [[nodiscard]] bool is_forward() const { return spec_->name().ends_with("_fwd"); }
  [[nodiscard]] Kind kind() const {
    return spec_->name().find("upper_triang") != std::string::npos ? Kind::kCausal
           : spec_->name().find("masked") != std::string::npos     ? Kind::kMasked
                                                                   : Kind::kPlain;
  }
  [[nodiscard]] I64 max_cols() const {
    const std::string& text = params_.at("max_cols");
    return text == "any" ? std::numeric_limits<I64>::max() : std::stoll(text);
  }

  template <typename... Types>
  void launch(const Shape& shape, const LaunchOptions& options, Types... arguments) const {
    auto geometry = spec_->geometry(spec_->canonical(params_).value(),
                                    {{"rows", shape.rows()}, {"cols", shape.cols}});
    ASSERT_TRUE(geometry) << geometry.error().message;
    geometry->grid[0] = std::min(geometry->grid[0], options.most_blocks);
    const auto entry = reinterpret_cast<void (*)(Types...)>(entry_);
    const auto done =
        kiln_cpu::launch(*geometry, options.order, [&] { entry(arguments...); });
    ASSERT_TRUE(done) << done.error().message;
  }

 private:
  void (*entry_)();
  std::shared_ptr<const render::KernelSpec> spec_;
  Parameters params_;
  std::string name_;
};

/// Elements with guards before and behind, `offset` elements off a 16-byte boundary.
template <typename T>
class Tensor {
 public:
  explicit Tensor(std::size_t size, std::size_t offset = 0)
      : storage_(size + offset + 2 * kGuard, T::from(kNaN)),
        begin_(kGuard + offset),
        size_(size) {
    // A vector's memory is 16-byte aligned, and so are kGuard elements.
    guard_ = storage_;
  }
  [[nodiscard]] T* data() { return storage_.data() + begin_; }
  [[nodiscard]] const T* data() const { return storage_.data() + begin_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  T& operator[](std::size_t at) { return data()[at]; }
  const T& operator[](std::size_t at) const { return data()[at]; }
  [[nodiscard]] bool guards_hold() const {
    const auto same = [&](std::size_t from, std::size_t to) {
      return std::memcmp(storage_.data() + from, guard_.data() + from,
                         (to - from) * sizeof(T)) == 0;
    };
    return same(0, begin_) && same(begin_ + size_, storage_.size());
  }
  friend bool same_bits(const Tensor& a, const Tensor& b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::vector<T> storage_;
  std::vector<T> guard_;
  std::size_t begin_;
  std::size_t size_;
};

struct Mask {
  std::vector<std::uint8_t> bytes;
  I64 batch_stride = 0;
};

/// A quarter of the columns masked; every fifth row of a mask wholly.
Mask make_mask(const Shape& shape, I64 batches) {
  std::mt19937 random(7);
  Mask mask;
  mask.batch_stride = batches == 1 ? 0 : shape.sq * shape.cols;
  for (I64 row = 0; row < batches * shape.sq; ++row) {
    for (I64 j = 0; j < shape.cols; ++j) {
      mask.bytes.push_back(row % 5 == 4 || random() % 4 == 0 ? 1 : 0);
    }
  }
  return mask;
}

bool is_visible(Kind kind, const Shape& shape, const Mask& mask, I64 row, I64 j) {
  const I64 i = row % shape.sq;
  switch (kind) {
    case Kind::kPlain:
      return true;
    case Kind::kMasked: {
      const I64 at = row / (shape.heads * shape.sq) * mask.batch_stride;
      return mask.bytes[static_cast<std::size_t>(at + i * shape.cols + j)] == 0;
    }
    case Kind::kCausal:
      return j <= i + shape.cols - shape.sq;
  }
  return false;
}

template <typename T>
Tensor<T> random_tensor(std::size_t size, std::size_t offset, float spread) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::normal_distribution<float> normal(0.0F, spread);
  Tensor<T> tensor(size, offset);
  for (std::size_t i = 0; i < size; ++i) {
    tensor[i] = T::from(normal(random));
  }
  return tensor;
}

template <typename T>
void launch_forward(const Variant& variant, const Shape& shape, const Mask& mask,
                    Tensor<T>& out, const Tensor<T>& in, float scale,
                    const LaunchOptions& options) {
  void* y = out.data();
  const void* x = in.data();
  switch (variant.kind()) {
    case Kind::kPlain:
      variant.launch(shape, options, y, x, scale, shape.rows(), shape.cols);
      break;
    case Kind::kMasked:
      variant.launch(shape, options, y, x, mask.bytes.data(), scale, shape.rows(),
                     shape.heads, shape.sq, shape.cols, mask.batch_stride);
      break;
    case Kind::kCausal:
      variant.launch(shape, options, y, x, scale, shape.rows(), shape.sq, shape.cols);
      break;
  }
}

template <typename T>
void launch_backward(const Variant& variant, const Shape& shape, Tensor<T>& dx,
                     const Tensor<T>& dy, const Tensor<T>& y, float scale,
                     const LaunchOptions& options) {
  void* grad_in = dx.data();
  const void* grad_out = dy.data();
  const void* out = y.data();
  if (variant.kind() == Kind::kCausal) {
    variant.launch(shape, options, grad_in, grad_out, out, scale, shape.rows(), shape.sq,
                   shape.cols);
  } else {
    variant.launch(shape, options, grad_in, grad_out, out, scale, shape.rows(),
                   shape.cols);
  }
}

/// Errors beyond the rounding of the store, in ulp, that a forward result may have:
/// exponent and approximation for 16-bit types; exponential and sum for a float.
template <typename T>
constexpr double kForwardSlack = sizeof(T) == 2 ? 0.1 : 3.0;

template <typename T>
double check_forward(const Variant& variant, const Shape& shape, const Mask& mask,
                     const Tensor<T>& out, const Tensor<T>& in, float scale) {
  double worst = 0;
  for (I64 row = 0; row < shape.rows(); ++row) {
    const auto visible = [&](I64 j) {
      return is_visible(variant.kind(), shape, mask, row, j);
    };
    const T* x = in.data() + row * shape.cols;
    const T* y = out.data() + row * shape.cols;
    const auto expected = forward(x, shape.cols, scale, visible);
    for (I64 j = 0; j < shape.cols; ++j) {
      const double want = expected[static_cast<std::size_t>(j)];
      if (!visible(j)) {
        EXPECT_EQ(y[j].value(), 0) << "masked: row " << row << " column " << j;
        continue;
      }
      // Exponentials below 2^-125 may be 0.
      const double error = std::max(0.0, std::fabs(y[j].value() - want) - 0x1p-125);
      worst = std::max(worst, std::isnan(error) ? kInfinity : error / ulp<T>(want));
    }
  }
  EXPECT_LE(worst, 0.5 + kForwardSlack<T>);
  EXPECT_TRUE(out.guards_hold());
  return worst;
}

template <typename T>
double check_backward(const Shape& shape, const Tensor<T>& dx, const Tensor<T>& dy,
                      const Tensor<T>& y, float scale) {
  double worst = 0;
  for (I64 row = 0; row < shape.rows(); ++row) {
    const I64 at = row * shape.cols;
    const auto expected =
        backward(y.data() + at, dy.data() + at, shape.cols, scale);
    for (I64 j = 0; j < shape.cols; ++j) {
      const double want = expected.dx[static_cast<std::size_t>(j)];
      const double got = dx.data()[at + j].value();
      if (y.data()[at + j].value() == 0) {
        EXPECT_EQ(got, 0) << "y is 0: row " << row << " column " << j;
      }
      const double rounding =
          16 * 0x1p-24 * expected.magnitude[static_cast<std::size_t>(j)] + 0x1p-149;
      const double error = std::max(0.0, std::fabs(got - want) - rounding);
      worst = std::max(worst, std::isnan(error) ? kInfinity : error / ulp<T>(want));
    }
  }
  EXPECT_LE(worst, 0.5 + 0x1p-6);
  EXPECT_TRUE(dx.guards_hold());
  return worst;
}

/// y that a forward kernel would have written, rounded to T.
template <typename T>
Tensor<T> make_y(const Variant& variant, const Shape& shape, const Mask& mask,
                 const Tensor<T>& x, std::size_t offset) {
  Tensor<T> y(x.size(), offset);
  for (I64 row = 0; row < shape.rows(); ++row) {
    const auto values = forward(x.data() + row * shape.cols, shape.cols, 0.5F, [&](I64 j) {
      return is_visible(variant.kind(), shape, mask, row, j);
    });
    for (I64 j = 0; j < shape.cols; ++j) {
      y.data()[row * shape.cols + j] =
          T::from(static_cast<float>(values[static_cast<std::size_t>(j)]));
    }
  }
  return y;
}

template <typename T>
double run_and_check(const Variant& variant, const Shape& shape, float scale,
                     std::size_t offset, const LaunchOptions& options) {
  const Mask mask = make_mask(
      shape, options.mask_batches == 0 ? shape.batch : options.mask_batches);
  const auto in = random_tensor<T>(shape.size(), offset, 3.0F);
  Tensor<T> out(shape.size(), offset);
  if (variant.is_forward()) {
    launch_forward(variant, shape, mask, out, in, scale, options);
    return check_forward(variant, shape, mask, out, in, scale);
  }
  const auto y = make_y(variant, shape, mask, in, offset);
  const auto dy = random_tensor<T>(shape.size(), offset, 1.0F);
  launch_backward(variant, shape, out, dy, y, scale, options);
  return check_backward(shape, out, dy, y, scale);
}

template <typename Function>
auto with_type(const std::string& dtype, Function function) {
  return dtype == "f16"    ? function(std::type_identity<F16>())
         : dtype == "bf16" ? function(std::type_identity<Bf16>())
                           : function(std::type_identity<F32>());
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const auto& list : {kiln_cpu::softmax_plain_kernels, kiln_cpu::softmax_masked_kernels,
                           kiln_cpu::softmax_causal_kernels}) {
    for (const auto& kernel : list) {
      all.emplace_back(kernel);
    }
  }
  return all;
}

class SoftmaxOnCpu : public testing::TestWithParam<Variant> {
 protected:
  double check(const Shape& shape, float scale = 0.125F, std::size_t offset = 0,
               const LaunchOptions& options = {}) {
    SCOPED_TRACE(testing::Message() << shape.batch << "x" << shape.heads << "x" << shape.sq
                                    << "x" << shape.cols << " scale " << scale
                                    << " offset " << offset);
    return with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
      return run_and_check<T>(GetParam(), shape, scale, offset, options);
    });
  }
  [[nodiscard]] bool takes(I64 cols) const { return cols <= GetParam().max_cols(); }
};

INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxOnCpu, testing::ValuesIn(variants()),
                         [](const auto& variant) {
                           std::string name = variant.param.name();
                           for (char& c : name) {
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

TEST_P(SoftmaxOnCpu, IsRightForEveryRowLengthUpTo130) {
  double worst = 0;
  for (I64 cols = 1; cols <= 130; ++cols) {
    if (takes(cols) && (cols < 40 || cols % 8 < 2)) {
      worst = std::max(worst, check({.batch = 2, .heads = 2, .sq = 3, .cols = cols}));
    }
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  fmt::print("worst {:.3f} ulp\n", worst);
}

TEST_P(SoftmaxOnCpu, IsRightForLongRows) {
  double worst = 0;
  for (const I64 cols : {256, 257, 512, 1000, 1024, 2048, 4088, 4095, 4096, 4097, 8200, 24576,
                         24580, 49152, 49160, 131072, 131073}) {
    if (takes(cols)) {
      worst = std::max(worst, check({.sq = cols > 5000 ? 1 : 3, .cols = cols}));
    }
  }
  fmt::print("worst {:.3f} ulp\n", worst);
}

TEST_P(SoftmaxOnCpu, IsRightForMoreRowsThanBlocks) {
  check({.batch = 3, .heads = 2, .sq = 37, .cols = 24}, 0.125F, 0, {.most_blocks = 2});
  check({.batch = 3, .heads = 2, .sq = 7, .cols = 29}, 0.125F, 0, {.most_blocks = 1});
}

TEST_P(SoftmaxOnCpu, IsRightOffAlignment) {
  for (const I64 cols : {16, 32, 1024, 2048}) {
    if (takes(cols)) {
      check({.sq = 3, .cols = cols}, 0.125F, 1);
      check({.sq = 3, .cols = cols}, 0.125F, 4);
    }
  }
}

TEST_P(SoftmaxOnCpu, IsRightWhereQueriesAndKeysDifferInNumber) {
  for (const I64 sq : {1, 5, 32, 41}) {
    check({.batch = 2, .sq = sq, .cols = 8});
    check({.batch = 2, .sq = sq, .cols = 31});
    check({.batch = 2, .sq = sq, .cols = 32});
  }
}

TEST_P(SoftmaxOnCpu, TakesAnyScale) {
  for (const float scale : {-1.0F, 0.0F, 1.0F, 3.7F, 1e-30F, 1000.0F, -0.01F}) {
    check({.sq = 5, .cols = 32}, scale);
    check({.sq = 5, .cols = 31}, scale);
  }
}

TEST_P(SoftmaxOnCpu, TakesOneMaskForTheWholeBatch) {
  check({.batch = 3, .heads = 2, .sq = 6, .cols = 32}, 0.125F, 0, {.mask_batches = 1});
}

TEST_P(SoftmaxOnCpu, DoesNothingForNoRowsOrNoColumns) {
  check({.batch = 0, .cols = 32});
  check({.sq = 3, .cols = 0});
}

TEST_P(SoftmaxOnCpu, GivesTheSameBitsInEveryOrderOfThreads) {
  for (const I64 cols : {32, 31, 1024, 4096, 30000}) {
    if (!takes(cols)) {
      continue;
    }
    with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
      const Shape shape{.sq = 2, .cols = cols};
      const Mask mask = make_mask(shape, 1);
      const auto in = random_tensor<T>(shape.size(), 0, 3.0F);
      const auto y = make_y(GetParam(), shape, mask, in, 0);
      std::vector<Tensor<T>> results;
      for (const Order order : {Order::kAscending, Order::kDescending, Order::kShuffled}) {
        auto& out = results.emplace_back(shape.size());
        if (GetParam().is_forward()) {
          launch_forward(GetParam(), shape, mask, out, in, 0.125F, {.order = order});
        } else {
          launch_backward(GetParam(), shape, out, in, y, 0.125F, {.order = order});
        }
      }
      EXPECT_TRUE(same_bits(results[0], results[1])) << cols;
      EXPECT_TRUE(same_bits(results[0], results[2])) << cols;
      return 0;
    });
  }
}

TEST_P(SoftmaxOnCpu, PassesOnNaNAndKeepsMaskedElementsZero) {
  for (const I64 cols : {32, 31}) {
    for (const float special : {kNaN, kInfinity}) {
      with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
        const Shape shape{.sq = 4, .cols = cols};
        const Mask mask = make_mask(shape, 1);
        auto in = random_tensor<T>(shape.size(), 0, 1.0F);
        const auto y = make_y(GetParam(), shape, mask, in, 0);
        I64 at = 0;  // the first visible column of row 1
        while (!is_visible(GetParam().kind(), shape, mask, 1, at)) {
          ++at;
        }
        in.data()[cols + at] = T::from(special);
        Tensor<T> out(shape.size());
        if (GetParam().is_forward()) {
          launch_forward(GetParam(), shape, mask, out, in, 1.0F, {});
        } else {
          launch_backward(GetParam(), shape, out, in, y, 1.0F, {});
        }
        for (I64 row = 0; row < shape.sq; ++row) {
          for (I64 j = 0; j < cols; ++j) {
            const double value = out.data()[row * cols + j].value();
            if (!is_visible(GetParam().kind(), shape, mask, row, j)) {
              EXPECT_EQ(value, 0) << row << " " << j;
            } else if (row != 1) {
              EXPECT_TRUE(std::isfinite(value)) << row << " " << j;
            } else {
              // The gradient of an infinite dy may be infinite itself.
              EXPECT_TRUE(std::isnan(value) ||
                          (!GetParam().is_forward() && std::isinf(value)))
                  << row << " " << j << " is " << value;
            }
          }
        }
        return 0;
      });
    }
  }
}

TEST_P(SoftmaxOnCpu, TakesMinusInfinityAsMaskedAndTheLowestFloatAsAValue) {
  if (!GetParam().is_forward()) {
    GTEST_SKIP() << "of the forward kernels";
  }
  for (const I64 cols : {8, 7}) {
    with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
      const Shape shape{.sq = 1, .cols = cols};
      const Mask mask{.bytes = std::vector<std::uint8_t>(8, 0)};
      const float lowest = sizeof(T) == 4                     ? -3.4028235e38F
                           : std::is_same_v<T, F16>           ? -65504.0F
                                                              : -3.3895e38F;
      for (const float fill : {-kInfinity, lowest}) {
        Tensor<T> in(shape.size());
        for (std::size_t i = 0; i < in.size(); ++i) {
          in[i] = T::from(fill);
        }
        Tensor<T> out(shape.size());
        launch_forward(GetParam(), shape, mask, out, in, 1.0F, {});
        const double want = fill == lowest ? 1.0 / static_cast<double>(cols) : 0;
        EXPECT_NEAR(out[0].value(), want, 0x1p-9) << fill;
        in[1] = T::from(2.0F);
        launch_forward(GetParam(), shape, mask, out, in, 1.0F, {});
        EXPECT_EQ(out[0].value(), 0);
        EXPECT_EQ(out[1].value(), 1);
      }
      return 0;
    });
  }
}

TEST_P(SoftmaxOnCpu, IgnoresWhatIsInMaskedElements) {
  with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
    const Shape shape{.sq = 6, .cols = 32};
    const Mask mask = make_mask(shape, 1);
    auto in = random_tensor<T>(shape.size(), 0, 1.0F);
    const auto y = make_y(GetParam(), shape, mask, in, 0);
    Tensor<T> clean(shape.size());
    Tensor<T> dirty(shape.size());
    const auto run = [&](Tensor<T>& out) {
      if (GetParam().is_forward()) {
        launch_forward(GetParam(), shape, mask, out, in, 1.0F, {});
      } else {
        launch_backward(GetParam(), shape, out, in, y, 1.0F, {});
      }
    };
    run(clean);
    for (I64 row = 0; row < shape.sq; ++row) {
      for (I64 j = 0; j < shape.cols; ++j) {
        if (!is_visible(GetParam().kind(), shape, mask, row, j)) {
          in.data()[row * shape.cols + j] = T::from(j % 2 == 0 ? kNaN : kInfinity);
        }
      }
    }
    run(dirty);
    EXPECT_TRUE(same_bits(clean, dirty));
    return 0;
  });
}

}  // namespace
}  // namespace kiln::softmax_test
