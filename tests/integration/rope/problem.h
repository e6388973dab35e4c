// One problem for one kernel: tensors behind guards, the operation, the error against
// the reference.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tests/integration/rope/reference.h"
#include "tests/integration/rope/shape.h"
#include "tests/support/operations/run_operation.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"
#include "tests/support/tensors/numbers.h"

namespace kiln::rope_test {

using kiln_cpu::Order;
using kiln_cpu::Side;
using test::F32;
using test::with_type;
template <typename T>
using Tensor = test::GuardedTensor<T>;

/// How a problem's tensors lie, and what positions it has.
struct Setting {
  Layout in = Layout::kSbhd;
  Layout out = Layout::kSbhd;
  I64 gap = 0;
  std::optional<std::size_t> offset{};  // of tensors from a 16-byte boundary
  std::optional<std::size_t> table_offset{};
  std::string_view odd{};  // the tensor that lies an element past a boundary
  Side exact = Side::kEnd;
  bool paired = false;  // a column of the table for each pair
  I64 table_gap = 0;    // between its rows
  I64 positions = 0;    // 0: as many as are needed
  I64 start = 0;
  std::vector<std::int32_t> starts{};
  bool few_blocks = false;  // one, whatever the plan asks for
  Order order = Order::kAscending;
  int multiprocessors = 4;

  [[nodiscard]] test::Place place(std::string_view name) const {
    return {.offset = name == odd ? 1 : offset, .exact = exact};
  }
  [[nodiscard]] test::Place place_of_table(std::string_view name) const {
    return {.offset = name == odd ? 1 : table_offset, .exact = exact};
  }
};

/// Of `count` elements.
template <typename T>
bool same_bits(const T* a, const T* b, std::size_t count) {
  return std::memcmp(static_cast<const void*>(a), b, count * sizeof(T)) == 0;
}

/// Query or key: heads in memory, and where they are.
template <typename T>
struct Heads {
  Heads(const char* in_name, const char* out_name, const Shape& shape, I64 count,
        const Setting& setting)
      : heads(count),
        in_strides(strides_of(setting.in, shape, count, setting.gap)),
        out_strides(strides_of(setting.out, shape, count, setting.gap)),
        in(in_name, static_cast<std::size_t>(span_of(shape, count, in_strides)),
           setting.place(in_name)),
        out(out_name, static_cast<std::size_t>(span_of(shape, count, out_strides)),
            setting.place(out_name)) {
    test::fill_normally(std::span(in));
  }
  [[nodiscard]] static I64 at(const RopeStrides& strides, I64 b, I64 s, I64 h, I64 d) {
    return b * strides.batch + s * strides.sequence + h * strides.head +
           d * strides.dim;
  }
  T& in_at(I64 b, I64 s, I64 h, I64 d) { return in.data()[at(in_strides, b, s, h, d)]; }
  [[nodiscard]] const T& out_at(I64 b, I64 s, I64 h, I64 d) const {
    return out.data()[at(out_strides, b, s, h, d)];
  }
  [[nodiscard]] std::vector<double> in_head(I64 b, I64 s, I64 h, I64 dim) const {
    std::vector<double> head;
    for (I64 d = 0; d < dim; ++d)
      head.push_back(in.data()[at(in_strides, b, s, h, d)].value());
    return head;
  }
  [[nodiscard]] ops::RopeTensor argument() {
    return {.out = out.data(),
            .in = in.data(),
            .heads = heads,
            .out_strides = out_strides,
            .in_strides = in_strides};
  }

  I64 heads;
  RopeStrides in_strides;
  RopeStrides out_strides;
  Tensor<T> in;
  Tensor<T> out;
};

/// Angles, or cosines and sines of U. Position p turns pair i by about p /
/// 10000^(2i/r); of the two elements of a pair one a little more, if they have columns
/// of their own.
template <typename U>
struct Table {
  Table(const Shape& shape, const Setting& setting, I64 rows, bool of_angles)
      : positions(rows),
        columns(setting.paired ? shape.rotary / 2 : shape.rotary),
        stride(columns + setting.table_gap),
        has_angles(of_angles),
        angles("angles", of_angles ? size() : 0, setting.place_of_table("angles")),
        cos("cos", of_angles ? 0 : size(), setting.place_of_table("cos")),
        sin("sin", of_angles ? 0 : size(), setting.place_of_table("sin")) {
    for (I64 p = 0; p < positions; ++p) {
      for (I64 c = 0; c < columns; ++c) set(p, c, angle(p, c));
    }
  }
  [[nodiscard]] float angle(I64 p, I64 c) const {
    const double part = static_cast<double>(c % (columns / 2 + 1)) /
                        static_cast<double>(columns / 2 + 1);
    const double more = c % 3 == 0 ? 0.25 : 0;
    return static_cast<float>(static_cast<double>(p) * std::pow(10000.0, -part) + more);
  }
  void set(I64 p, I64 c, float angle) {
    const auto i = static_cast<std::size_t>(p * stride + c);
    if (has_angles) {
      angles[i] = F32::from(angle);
    } else {
      cos[i] = U::from(static_cast<float>(std::cos(static_cast<double>(angle))));
      sin[i] = U::from(static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>((positions - 1) * stride + columns);
  }
  /// What the kernel is told about position p, a column an element.
  [[nodiscard]] Turns turns(I64 p, I64 rotary, bool interleaved) const {
    Turns of;
    for (I64 d = 0; d < rotary; ++d) {
      const I64 pair = interleaved ? d / 2 : d % (rotary / 2);
      const auto i =
          static_cast<std::size_t>(p * stride + (columns == rotary ? d : pair));
      of.cos.push_back(has_angles ? std::cos(angles[i].value()) : cos[i].value());
      of.sin.push_back(has_angles ? std::sin(angles[i].value()) : sin[i].value());
    }
    return of;
  }

  I64 positions;
  I64 columns;
  I64 stride;
  bool has_angles;
  Tensor<F32> angles;
  Tensor<U> cos;
  Tensor<U> sin;
};

/// T of the tensors, U of cosines and sines.
template <typename T, typename U>
class Problem {
 public:
  Problem(const Form& form, const Shape& of, const Setting& with)
      : shape(of),
        setting(with),
        q("q_in", "q_out", of, of.q_heads, with),
        k("k_in", "k_out", of, of.k_heads, with),
        table(of, with, positions(of, with), form.table == TableKind::kAngles),
        form_(form),
        starts_(test::ints("starts", with.starts)),
        cu_seqlens_(test::ints("cu_seqlens", of.cu_seqlens)) {}

  [[nodiscard]] bool interleaved() const {
    return form_.style == ops::RopeStyle::kInterleaved;
  }

  [[nodiscard]] ops::RopeArguments arguments() {
    ops::RopeArguments args;
    args.dtype = form_.dtype;
    args.style = form_.style;
    args.batch = shape.batch;
    args.sequence = shape.sequence;
    args.head_dim = shape.dim;
    args.rotary_dim = shape.rotary;
    args.q = q.argument();
    args.k = k.argument();
    if (table.has_angles) {
      args.table.angles = reinterpret_cast<const float*>(table.angles.data());
    } else {
      args.table.cos = table.cos.data();
      args.table.sin = table.sin.data();
      args.table.dtype = std::is_same_v<U, F32> ? ops::DType::kF32 : form_.dtype;
    }
    args.table.positions = table.positions;
    args.table.columns = table.columns;
    args.table.row_stride = table.stride;
    args.start = setting.start;
    if (!setting.starts.empty())
      args.starts = reinterpret_cast<const std::int32_t*>(starts_.data());
    if (shape.packed())
      args.cu_seqlens = reinterpret_cast<const std::int32_t*>(cu_seqlens_.data());
    return args;
  }

  /// Writes q.out and k.out, and can write nothing else. What goes wrong is a failure
  /// of the test.
  void run() { run(arguments()); }
  void run(const ops::RopeArguments& args) {
    if (form_.forward) {
      run_pass(ops::RopeForward{args});
    } else {
      run_pass(ops::RopeBackward{args});
    }
  }

  /// The position of token (b, s), and whether it belongs to a sequence.
  [[nodiscard]] std::pair<I64, bool> position(I64 b, I64 s) const {
    I64 sequence = b;
    I64 at = s;
    if (shape.packed()) {
      const auto& begins = shape.cu_seqlens;
      const auto after = std::upper_bound(begins.begin(), begins.end(), s);
      if (after == begins.begin() || after == begins.end())
        return {0, false};
      sequence = after - begins.begin() - 1;
      at = s - *(after - 1);
    }
    const I64 more =
        setting.starts.empty() ? 0 : setting.starts[static_cast<std::size_t>(sequence)];
    return {setting.start + more + at, true};
  }

  /// The largest error in ulp, with failures where what is copied is not, and where
  /// anything between the heads was written.
  [[nodiscard]] double error() { return std::max(error_of(q), error_of(k)); }

  /// The same after a run, with a failure where it is too large: half an ulp of the
  /// store. What a float's roundings cost before is excused by the terms.
  double run_and_check() {
    run();
    const double worst = error();
    EXPECT_LE(worst, 0.5 + 0x1p-6);
    return worst;
  }

  const Shape shape;
  Setting setting;
  Heads<T> q;
  Heads<T> k;
  Table<U> table;

 private:
  static I64 positions(const Shape& of, const Setting& with) {
    if (with.positions != 0)
      return with.positions;
    const I64 most = with.starts.empty() ? 0 : std::ranges::max(with.starts);
    return std::max<I64>(1, with.start + most + of.sequence);
  }

  void run_pass(const test::Operation& operation) {
    const test::ReadOnly inputs(q.in, k.in, table.angles, table.cos, table.sin, starts_,
                                cu_seqlens_);
    const auto done = test::run_operation(
        operation, {.order = setting.order,
                    .multiprocessors = setting.multiprocessors,
                    .most = setting.few_blocks ? LaunchArguments{{"tokens", 1}}
                                               : LaunchArguments{}});
    ASSERT_TRUE(done) << done.error().message;
  }

  double error_of(const Heads<T>& heads) {
    double worst = 0;
    std::vector<bool> seen(heads.out.size(), false);
    for (I64 b = 0; b < shape.rows(); ++b) {
      for (I64 s = 0; s < shape.sequence; ++s) {
        const auto [at, exists] = position(b, s);
        const Turns turns =
            exists ? table.turns(at, shape.rotary, interleaved()) : Turns{};
        for (I64 h = 0; h < heads.heads; ++h) {
          worst = std::max(worst, head_error(heads, b, s, h, turns, exists));
          for (I64 d = 0; d < shape.dim; ++d) {
            seen[static_cast<std::size_t>(
                Heads<T>::at(heads.out_strides, b, s, h, d))] = true;
          }
        }
      }
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_TRUE(seen[i] || std::isnan(heads.out[i].value())) << "written: " << i;
    }
    return worst;
  }

  double head_error(const Heads<T>& heads, I64 b, I64 s, I64 h, const Turns& turns,
                    bool exists) {
    const std::vector<double> x = heads.in_head(b, s, h, shape.dim);
    const Rotated want = rotate(x, turns, interleaved(), !form_.forward);
    // In halves of an ulp: a rounded product, and of angles sine and cosine to 0.83
    // ulp.
    const double roundings = table.has_angles ? 2.7 : 1.0;
    double worst = 0;
    for (I64 d = 0; d < shape.dim; ++d) {
      const auto i = static_cast<std::size_t>(d);
      const double got = heads.out_at(b, s, h, d).value();
      if (!exists || d >= shape.rotary) {
        EXPECT_EQ(got, exists ? x[i] : 0) << "copied: " << d;
      } else {
        const double excused = roundings * 0x1p-24 * want.magnitude[i] + 0x1p-149;
        worst = std::max(worst, test::in_ulp<T>(got, want.head[i], excused));
      }
    }
    return worst;
  }

  const Form form_;
  Tensor<test::Int> starts_;
  Tensor<test::Int> cu_seqlens_;
};

/// Calls `function` with T of the tensors and U of cosines and sines.
template <typename Function>
auto with_types(const Form& form, const Function& function) {
  return test::with_types(form.dtype, form.table == TableKind::kCosSin, function);
}

}  // namespace kiln::rope_test
