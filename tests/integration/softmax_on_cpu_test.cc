// The softmax kernels' own text against double on a CPU: shapes at every edge, masks,
// special values, three orders of the threads. Bounds are those the texts promise.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>

#include "render/catalog.h"
#include "request/selection.h"
#include "tests/integration/softmax_reference.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/kernels.h"

namespace kiln_cpu {
CpuKernels softmax_plain_kernels();
CpuKernels softmax_masked_kernels();
CpuKernels softmax_causal_kernels();
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

/// What a launch is given beside its tensors.
struct Setting {
  float scale = 0.125F;
  std::size_t offset = 0;  // of all tensors from a 16-byte boundary, in elements
  Order order = Order::kAscending;
  std::uint32_t most_blocks = ~0U;
  I64 mask_batches = 0;  // 0: as many as the batch
};

const render::TemplateCatalog& catalog() {
  static const auto* const catalog_of_all = new render::TemplateCatalog(
      render::TemplateCatalog::open(templates::embedded()).value());
  return *catalog_of_all;
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
  void launch(const Shape& shape, const Setting& setting, Types... arguments) const {
    auto geometry = spec_->geometry(spec_->canonical(params_).value(),
                                    {{"rows", shape.rows()}, {"cols", shape.cols}});
    ASSERT_TRUE(geometry) << geometry.error().message;
    geometry->grid[0] = std::min(geometry->grid[0], setting.most_blocks);
    const auto entry = reinterpret_cast<void (*)(Types...)>(entry_);
    const auto done =
        kiln_cpu::launch(*geometry, setting.order, [&] { entry(arguments...); });
    ASSERT_TRUE(done) << done.error().message;
  }

 private:
  void (*entry_)();
  std::shared_ptr<const render::KernelSpec> spec_;
  Parameters params_;
  std::string name_;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name();
}

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

/// Errors beyond the rounding of the store, in ulp, that a forward result may have:
/// exponent and approximation for 16-bit types; exponential and sum for a float.
template <typename T>
constexpr double kForwardSlack = sizeof(T) == 2 ? 0.1 : 3.0;

/// One problem for one variant: its inputs, its launch, its check. `in` is x of a
/// forward kernel and dy of a backward one, whose y a forward kernel might have
/// written.
template <typename T>
class Problem {
 public:
  Problem(const Variant& variant, const Shape& shape, const Setting& setting)
      : variant_(variant),
        shape_(shape),
        setting_(setting),
        mask_(make_mask(
            shape, setting.mask_batches == 0 ? shape.batch : setting.mask_batches)),
        in_(random_tensor<T>(shape.size(), setting.offset, 3.0F)),
        y_(make_y()) {}

  [[nodiscard]] bool visible(I64 row, I64 j) const {
    return is_visible(variant_.kind(), shape_, mask_, row, j);
  }
  T& in(I64 row, I64 j) { return in_.data()[row * shape_.cols + j]; }
  void set_order(Order order) { setting_.order = order; }

  [[nodiscard]] Tensor<T> run() const {
    Tensor<T> out(shape_.size(), setting_.offset);
    void* const to = out.data();
    const void* const from = in_.data();
    const void* const y = y_.data();
    const I64 rows = shape_.rows();
    const I64 cols = shape_.cols;
    const float scale = setting_.scale;
    const bool causal = variant_.kind() == Kind::kCausal;
    if (!variant_.is_forward() && causal) {
      variant_.launch(shape_, setting_, to, from, y, scale, rows, shape_.sq, cols);
    } else if (!variant_.is_forward()) {
      variant_.launch(shape_, setting_, to, from, y, scale, rows, cols);
    } else if (causal) {
      variant_.launch(shape_, setting_, to, from, scale, rows, shape_.sq, cols);
    } else if (variant_.kind() == Kind::kMasked) {
      variant_.launch(shape_, setting_, to, from, mask_.bytes.data(), scale, rows,
                      shape_.heads, shape_.sq, cols, mask_.batch_stride);
    } else {
      variant_.launch(shape_, setting_, to, from, scale, rows, cols);
    }
    EXPECT_TRUE(out.guards_hold());
    return out;
  }

  /// The largest error in ulp that is not excused.
  [[nodiscard]] double run_and_check() const {
    const Tensor<T> out = run();
    double worst = 0;
    for (I64 row = 0; row < shape_.rows(); ++row) {
      const T* const got = out.data() + row * shape_.cols;
      worst = std::max(worst, variant_.is_forward() ? forward_error(row, got)
                                                    : backward_error(row, got));
    }
    EXPECT_LE(worst, 0.5 + (variant_.is_forward() ? kForwardSlack<T> : 0x1p-6));
    return worst;
  }

 private:
  static double in_ulp(double got, double want, double excused) {
    const double error = std::fabs(got - want) - excused;
    return std::isnan(error) ? kInfinity : std::max(0.0, error) / ulp<T>(want);
  }

  [[nodiscard]] double forward_error(I64 row, const T* got) const {
    const auto expected =
        forward(in_.data() + row * shape_.cols, shape_.cols, setting_.scale,
                [&](I64 j) { return visible(row, j); });
    double worst = 0;
    for (I64 j = 0; j < shape_.cols; ++j) {
      if (!visible(row, j)) {
        EXPECT_EQ(got[j].value(), 0) << "masked: row " << row << " column " << j;
      }
      // Exponentials below 2^-125 may be 0.
      const double want = expected[static_cast<std::size_t>(j)];
      worst = std::max(worst, in_ulp(got[j].value(), want, 0x1p-125));
    }
    return worst;
  }

  [[nodiscard]] double backward_error(I64 row, const T* got) const {
    const T* const y = y_.data() + row * shape_.cols;
    const auto expected =
        backward(y, in_.data() + row * shape_.cols, shape_.cols, setting_.scale);
    double worst = 0;
    for (I64 j = 0; j < shape_.cols; ++j) {
      if (y[j].value() == 0) {
        EXPECT_EQ(got[j].value(), 0) << "y is 0: row " << row << " column " << j;
      }
      const auto at = static_cast<std::size_t>(j);
      const double rounding = 16 * 0x1p-24 * expected.magnitude[at] + 0x1p-149;
      worst = std::max(worst, in_ulp(got[j].value(), expected.dx[at], rounding));
    }
    return worst;
  }

  [[nodiscard]] Tensor<T> make_y() const {
    Tensor<T> y(shape_.size(), setting_.offset);
    for (I64 row = 0; row < shape_.rows() && !variant_.is_forward(); ++row) {
      const I64 at = row * shape_.cols;
      const auto values = forward(in_.data() + at, shape_.cols, 0.5F,
                                  [&](I64 j) { return visible(row, j); });
      for (I64 j = 0; j < shape_.cols; ++j) {
        y.data()[at + j] =
            T::from(static_cast<float>(values[static_cast<std::size_t>(j)]));
      }
    }
    return y;
  }

  const Variant& variant_;
  const Shape shape_;
  Setting setting_;
  const Mask mask_;
  Tensor<T> in_;
  const Tensor<T> y_;
};

template <typename Function>
auto with_type(const std::string& dtype, Function function) {
  return dtype == "f16"    ? function(std::type_identity<F16>())
         : dtype == "bf16" ? function(std::type_identity<Bf16>())
                           : function(std::type_identity<F32>());
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const auto& list :
       {kiln_cpu::softmax_plain_kernels(), kiln_cpu::softmax_masked_kernels(),
        kiln_cpu::softmax_causal_kernels()}) {
    for (const auto& kernel : list) {
      all.emplace_back(kernel);
    }
  }
  return all;
}

class SoftmaxOnCpu : public testing::TestWithParam<Variant> {
 protected:
  static double check(const Shape& shape, const Setting& setting = {}) {
    SCOPED_TRACE(testing::Message() << shape.batch << "x" << shape.heads << "x"
                                    << shape.sq << "x" << shape.cols << " scale "
                                    << setting.scale << " offset " << setting.offset);
    return with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
      return Problem<T>(GetParam(), shape, setting).run_and_check();
    });
  }
  [[nodiscard]] static bool takes(I64 cols) { return cols <= GetParam().max_cols(); }
};

std::string test_name(const testing::TestParamInfo<Variant>& variant) {
  std::string name = variant.param.name();
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

std::vector<Variant> forward_variants() {
  std::vector<Variant> forward;
  for (const Variant& variant : variants()) {
    if (variant.is_forward()) {
      forward.push_back(variant);
    }
  }
  return forward;
}

class ForwardSoftmaxOnCpu : public SoftmaxOnCpu {};

INSTANTIATE_TEST_SUITE_P(Variants, SoftmaxOnCpu, testing::ValuesIn(variants()),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Variants, ForwardSoftmaxOnCpu,
                         testing::ValuesIn(forward_variants()), test_name);

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
  for (const I64 cols : {256, 257, 512, 1000, 1024, 2048, 4088, 4095, 4096, 4097, 8200,
                         24576, 24580, 49152, 49160, 131072, 131073}) {
    if (takes(cols)) {
      worst = std::max(worst, check({.sq = cols > 5000 ? 1 : 3, .cols = cols}));
    }
  }
  fmt::print("worst {:.3f} ulp\n", worst);
}

TEST_P(SoftmaxOnCpu, IsRightForMoreRowsThanBlocks) {
  check({.batch = 3, .heads = 2, .sq = 37, .cols = 24}, {.most_blocks = 2});
  check({.batch = 3, .heads = 2, .sq = 7, .cols = 29}, {.most_blocks = 1});
}

TEST_P(SoftmaxOnCpu, IsRightOffAlignment) {
  for (const I64 cols : {16, 32, 1024, 2048}) {
    if (takes(cols)) {
      check({.sq = 3, .cols = cols}, {.offset = 1});
      check({.sq = 3, .cols = cols}, {.offset = 4});
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
    check({.sq = 5, .cols = 32}, {.scale = scale});
    check({.sq = 5, .cols = 31}, {.scale = scale});
  }
}

TEST_P(SoftmaxOnCpu, TakesOneMaskForTheWholeBatch) {
  check({.batch = 3, .heads = 2, .sq = 6, .cols = 32}, {.mask_batches = 1});
}

TEST_P(SoftmaxOnCpu, DoesNothingForNoRowsOrNoColumns) {
  check({.batch = 0, .cols = 32});
  check({.sq = 3, .cols = 0});
}

template <typename T>
void expect_same_bits_in_every_order(const Variant& variant, I64 cols) {
  Problem<T> problem(variant, {.sq = 2, .cols = cols}, {});
  const Tensor<T> ascending = problem.run();
  for (const Order order : {Order::kDescending, Order::kShuffled}) {
    problem.set_order(order);
    EXPECT_TRUE(same_bits(ascending, problem.run())) << cols << " columns";
  }
}

TEST_P(SoftmaxOnCpu, GivesTheSameBitsInEveryOrderOfThreads) {
  for (const I64 cols : {32, 31, 1024, 4096, 30000}) {
    if (takes(cols)) {
      with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
        expect_same_bits_in_every_order<T>(GetParam(), cols);
      });
    }
  }
}

/// `special` goes into the first visible element of row 1.
template <typename T>
void expect_row_of_nan(const Variant& variant, I64 cols, float special) {
  const Shape shape{.sq = 4, .cols = cols};
  Problem<T> problem(variant, shape, {.scale = 1.0F});
  I64 at = 0;
  while (!problem.visible(1, at)) {
    ++at;
  }
  problem.in(1, at) = T::from(special);
  const Tensor<T> out = problem.run();
  for (I64 i = 0; i < shape.sq * cols; ++i) {
    const double value = out.data()[i].value();
    if (!problem.visible(i / cols, i % cols)) {
      EXPECT_EQ(value, 0) << i;
    } else if (i / cols != 1) {
      EXPECT_TRUE(std::isfinite(value)) << i;
    } else {
      // The gradient of an infinite dy may be infinite itself; where y is 0 it is 0.
      EXPECT_TRUE(variant.is_forward() ? std::isnan(value)
                                       : !std::isfinite(value) || value == 0)
          << i << " is " << value;
    }
  }
}

TEST_P(SoftmaxOnCpu, PassesOnNaNAndKeepsMaskedElementsZero) {
  for (const I64 cols : {32, 31}) {
    for (const float special : {kNaN, kInfinity}) {
      with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
        expect_row_of_nan<T>(GetParam(), cols, special);
      });
    }
  }
}

/// Of the lowest value a row is uniform; of -inf it is empty; either loses to a 2.
template <typename T>
void expect_fill(const Variant& variant, I64 cols, float fill, double want) {
  Problem<T> problem(variant, {.sq = 1, .cols = cols}, {.scale = 1.0F});
  I64 visible = 0;
  for (I64 j = 0; j < cols; ++j) {
    problem.in(0, j) = T::from(fill);
    visible += problem.visible(0, j) ? 1 : 0;
  }
  ASSERT_GT(visible, 1);
  Tensor<T> out = problem.run();
  I64 at = 0;
  while (!problem.visible(0, at)) {
    ++at;
  }
  EXPECT_NEAR(out.data()[at].value(), want / static_cast<double>(visible), 0x1p-9);
  problem.in(0, at) = T::from(2.0F);
  out = problem.run();
  for (I64 j = 0; j < cols; ++j) {
    EXPECT_EQ(out.data()[j].value(), j == at ? 1 : 0) << j;
  }
}

TEST_P(ForwardSoftmaxOnCpu, TakesMinusInfinityAsMaskedAndTheLowestFloatAsAValue) {
  for (const I64 cols : {8, 7}) {
    with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
      expect_fill<T>(GetParam(), cols, -kInfinity, 0);
      expect_fill<T>(GetParam(), cols, T::kLowest, 1);
    });
  }
}

template <typename T>
void expect_masked_input_ignored(const Variant& variant) {
  const Shape shape{.sq = 6, .cols = 32};
  Problem<T> problem(variant, shape, {.scale = 1.0F});
  const Tensor<T> clean = problem.run();
  for (I64 i = 0; i < shape.sq * shape.cols; ++i) {
    if (!problem.visible(i / shape.cols, i % shape.cols)) {
      problem.in(i / shape.cols, i % shape.cols) =
          T::from(i % 2 == 0 ? kNaN : kInfinity);
    }
  }
  EXPECT_TRUE(same_bits(clean, problem.run()));
}

TEST_P(SoftmaxOnCpu, IgnoresWhatIsInMaskedElements) {
  with_type(GetParam().dtype(), [&]<typename T>(std::type_identity<T>) {
    expect_masked_input_ignored<T>(GetParam());
  });
}

}  // namespace
}  // namespace kiln::softmax_test
