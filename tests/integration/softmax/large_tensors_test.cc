// Tensors of more than 2^31 elements, of which the last rows alone are computed. Guards
// against offsets in 32 bits, which make a kernel write somewhere else from there on:
// indices of int, and products of two ints that are widened too late.

#include <gtest/gtest.h>

#include <cstring>

#include "tests/integration/softmax/problem.h"
#include "tests/support/tensors/sparse_tensor.h"

namespace kiln::softmax_test {
namespace {

constexpr I64 kSq = 4;
constexpr I64 kTail = 64;  // rows that are looked at, the last ones and the first

/// One tensor of which the first and last rows are touched alone.
template <typename T>
class Tails : public test::SparseTensor<T> {
 public:
  Tails(const char* name, const Shape& shape)
      : test::SparseTensor<T>(name, static_cast<I64>(shape.size()), shape.cols),
        cols_(shape.cols),
        first_of_tail_(shape.rows() - kTail) {}
  [[nodiscard]] T* tail() { return this->row(first_of_tail_); }
  void fill(T* at, T value) { std::fill_n(at, kTail * cols_, value); }

 private:
  I64 cols_;
  I64 first_of_tail_;
};

/// x, or dy and y, are the same numbers in each of the last rows.
template <typename T>
class LargeProblem {
 public:
  explicit LargeProblem(const Variant& variant)
      : variant_(variant), shape_(shape_of(variant)) {
    out_.fill(out_.row(0), T::from(kNaN));
    out_.fill(out_.tail(), T::from(kNaN));
    std::mt19937 random(5);  // NOLINT(cert-msc51-cpp): the same every time
    for (I64 i = 0; i < kTail * shape_.cols; ++i) {
      in_.tail()[i] = T::from(static_cast<float>(random() % 64) / 8 - 4);
      y_.tail()[i] = T::from(static_cast<float>(random() % 64) / 4096);
    }
    std::memset(mask_.tail(), 0, static_cast<std::size_t>(kTail * shape_.cols));
    mask_.tail()[kTail * shape_.cols - 1].bits = 1;
  }

  void run() {
    const auto geometry =
        variant_.geometry({{"rows", shape_.rows()}, {"cols", shape_.cols}});
    ASSERT_TRUE(geometry) << geometry.error().message;
    kiln_cpu::LaunchOptions options;
    options.first_block = geometry->grid[0] - 8;
    const auto done =
        with_arguments({kind_of(variant_), variant_.is_forward()},
                       {out_.data(), in_.data(), y_.data(), mask_.data()}, kScale,
                       shape_, kSq * shape_.cols, [&](const auto... arguments) {
                         return variant_.launch(*geometry, options, arguments...);
                       });
    ASSERT_TRUE(done) << done.error().message;
  }

  void check() {
    I64 computed = 0;
    for (I64 row = shape_.rows() - kTail; row < shape_.rows(); ++row) {
      const T* const got = out_.row(row);
      if (!std::isnan(got[0].value())) {
        ++computed;
        expect_row(row, got);
      }
    }
    EXPECT_GE(computed, 8);
    for (I64 i = 0; i < kTail * shape_.cols; ++i) {
      ASSERT_TRUE(std::isnan(out_.row(0)[i].value())) << "written: " << i;
    }
  }

 private:
  /// A few rows more than have 2^31 elements.
  static Shape shape_of(const Variant& variant) {
    const I64 cols = std::min<I64>(4096, max_cols(variant));
    return {
        .batch = ((I64{1} << 31) / cols + 2 * kTail) / kSq, .sq = kSq, .cols = cols};
  }

  [[nodiscard]] bool visible(I64 row, I64 j) const {
    const MaskView mask{reinterpret_cast<const std::uint8_t*>(mask_.data()),
                        kSq * shape_.cols};
    return is_visible(kind_of(variant_), shape_, mask, row, j);
  }

  void expect_row(I64 row, const T* got) {
    const auto in = values(in_.row(row), shape_.cols);
    const auto seen = [&](I64 j) { return visible(row, j); };
    const auto y = softmax(in, kScale, seen);
    auto given_y = values(y_.row(row), shape_.cols);
    for (I64 j = 0; j < shape_.cols; ++j) {
      // A causal backward kernel knows its triangle; a masked one finds y to be 0.
      if (kind_of(variant_) == Kind::kCausal && !seen(j)) {
        given_y[static_cast<std::size_t>(j)] = 0;
      }
    }
    const auto dx = gradient(given_y, in, kScale);
    double worst = 0;
    for (std::size_t j = 0; j < in.size(); ++j) {
      const double excused = 16 * 0x1p-24 * dx.magnitude[j] + 0x1p-125;
      worst = std::max(
          worst,
          in_ulp<T>(got[j].value(), variant_.is_forward() ? y[j] : dx.dx[j], excused));
    }
    EXPECT_LE(worst, error_bound<T>(variant_.is_forward())) << "row " << row;
  }

  static constexpr float kScale = 0.5F;

  const Variant& variant_;
  const Shape shape_;
  Tails<T> out_{"out", shape_};
  Tails<T> in_{"in", shape_};
  Tails<T> y_{"y", shape_};
  mutable Tails<Byte> mask_{"mask", shape_};
};

class LargeSoftmax : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, LargeSoftmax,
                         testing::ValuesIn(kernels_of_program()), kNameOfVariant);

TEST_P(LargeSoftmax, IsRightBeyondTwoToThe31Elements) {
  with_type(GetParam().param("dtype"), [&]<typename T>() {
    LargeProblem<T> problem(GetParam());
    problem.run();
    problem.check();
  });
}

}  // namespace
}  // namespace kiln::softmax_test
