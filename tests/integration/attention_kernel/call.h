// One attention problem: tensors behind guards, and both passes run where the program's
// tests run them, on this CPU (run_call.cc) or on a device (tests/gpu).

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/attention.h"
#include "tests/integration/attention_kernel/dropout.h"
#include "tests/integration/attention_kernel/reference.h"
#include "tests/support/attention_problem.h"
#include "tests/support/kernels/order.h"
#include "tests/support/tensors/element_types.h"
#include "tests/support/tensors/guarded_tensor.h"

namespace kiln::attention_test {

using attention::Bias;
using attention::Layout;
using attention::Mask;
using attention::Pass;
using attention::Problem;
using attention::Strides;
using kiln_cpu::Order;
using I64 = std::int64_t;
template <typename T>
using Tensor = test::GuardedTensor<T>;

/// A device is what it is, and takes none of capability and order.
struct Setting {
  /// Lengths of the sequences: of a mask with padding, or of a packed layout.
  std::vector<std::int32_t> lengths_q{};
  std::vector<std::int32_t> lengths_kv{};
  /// Of those, where a packed layout has room behind its sequences.
  std::vector<std::int32_t> tokens_q{};
  std::vector<std::int32_t> tokens_kv{};
  std::optional<float> scale{};
  ComputeCapability capability{9, 0};
  Order order = Order::kAscending;
  kiln_cpu::Side exact = kiln_cpu::Side::kEnd;
  std::optional<std::size_t> offset{};  // of q from a 16-byte boundary, in elements
  unsigned numbers = 1;                 // which random ones
};

/// Runs it to its end. Its pointers lead into GuardedMemory: what is writable there has
/// the results. Errors: those of planning it and of launches.
[[nodiscard]] Result<void> run_call(const ops::AttentionCall& call,
                                    const Setting& setting);

/// A problem of element type T with its tensors.
template <typename T>
class Call {
 public:
  explicit Call(const Problem& of, Setting with = {})
      : problem(of),
        setting(std::move(with)),
        q("q", span_q(problem.q, problem.dqk), {.offset = setting.offset}),
        k("k", span_kv(problem.k, problem.dqk), place()),
        v("v", span_kv(problem.v, problem.dv), place()),
        o("o", span_q(problem.o, problem.dv), place()),
        grad_o("grad_o", o.size(), place()),
        grad_q("grad_q", q.size(), place()),
        grad_k("grad_k", k.size(), place()),
        grad_v("grad_v", v.size(), place()),
        bias("bias", problem.bias_kind == Bias::kPostScale ? count_bias() : 0, place()),
        mask("mask", problem.bias_kind == Bias::kBoolean ? count_bias() : 0, place()),
        grad_bias("grad_bias", problem.bias_gradient ? count_bias() : 0, place()),
        stats("stats",
              static_cast<std::size_t>(problem.batch * problem.heads * problem.sq),
              place()),
        delta_("workspace", stats.size(), place()),
        begins_q_(begins("cu_seqlens_q", setting.lengths_q)),
        begins_kv_(begins("cu_seqlens_kv", setting.lengths_kv)),
        lengths_q_(test::ints("lengths_q", setting.tokens_q.empty()
                                               ? setting.lengths_q
                                               : setting.tokens_q)),
        lengths_kv_(test::ints("lengths_kv", setting.tokens_kv.empty()
                                                 ? setting.lengths_kv
                                                 : setting.tokens_kv)),
        seed_(one("seed", 0x123456789abcdefLL)),
        offset_(one("offset", 0x7700000042LL)) {
    std::mt19937 random(setting.numbers);
    for (Tensor<T>* const tensor : {&q, &k, &v, &grad_o, &bias}) {
      std::normal_distribution<float> normal;
      for (T& element : *tensor) element = T::from(normal(random));
    }
    for (auto& byte : mask) byte.bits = static_cast<std::uint8_t>(random() % 3);
  }

  [[nodiscard]] std::size_t bias_at(I64 b, I64 h, I64 i, I64 j) const {
    const Strides by = attention::bias_strides(problem);
    return static_cast<std::size_t>(b * by.batch + h * by.head + i * by.sequence + j);
  }

  [[nodiscard]] ops::AttentionTensors tensors() {
    const auto ints = [](auto& tensor) {
      return tensor.size() == 0 ? nullptr
                                : reinterpret_cast<const std::int32_t*>(tensor.data());
    };
    const auto numbers = [](auto& tensor) {
      return reinterpret_cast<const std::int64_t*>(tensor.data());
    };
    const bool is_padded = attention::is_padded(problem.mask);
    return {.q = q.data(),
            .k = k.data(),
            .v = v.data(),
            .o = o.data(),
            .stats = reinterpret_cast<float*>(stats.data()),
            .bias = given_bias(),
            .cu_seqlens_q = is_packed() ? ints(begins_q_) : nullptr,
            .cu_seqlens_kv = is_packed() ? ints(begins_kv_) : nullptr,
            .lengths_q = is_padded ? ints(lengths_q_) : nullptr,
            .lengths_kv = is_padded ? ints(lengths_kv_) : nullptr,
            .dropout_seed = problem.dropout > 0 ? numbers(seed_) : nullptr,
            .dropout_offset = problem.dropout > 0 ? numbers(offset_) : nullptr,
            .grad_o = grad_o.data(),
            .grad_q = grad_q.data(),
            .grad_k = grad_k.data(),
            .grad_v = grad_v.data(),
            .grad_bias = grad_bias.size() == 0 ? nullptr : grad_bias.data(),
            .scale = setting.scale,
            .workspace = delta_.data(),
            .workspace_bytes = delta_.size() * sizeof(float),
            .tokens_q = is_packed() ? total(setting.lengths_q) : 0,
            .tokens_kv = is_packed() ? total(setting.lengths_kv) : 0};
  }

  /// Other cu_seqlens than those of the setting's lengths.
  void set_begins(const std::vector<std::int32_t>& q_begins,
                  const std::vector<std::int32_t>& kv_begins) {
    for (std::size_t i = 0; i < q_begins.size(); ++i) {
      begins_q_[i].bits = q_begins[i];
      begins_kv_[i].bits = kv_begins[i];
    }
  }

  /// What goes wrong is a failure of the test.
  void run(Pass pass) {
    problem.pass = pass;
    const bool is_backward = pass == Pass::kBackward;
    problem.training = problem.training || is_backward;
    if (!is_backward)
      problem.stats = true;
    const ops::AttentionTensors all = tensors();
    const ops::AttentionCall call{problem, all};
    const auto checked = ops::check_pointers(call);
    ASSERT_TRUE(checked) << checked.error().message;
    const test::ReadOnly inputs(q, k, v, bias, mask, begins_q_, begins_kv_, lengths_q_,
                                lengths_kv_, seed_, offset_, grad_o);
    std::optional<test::ReadOnly<Tensor<T>, Tensor<test::F32>>> saved;
    if (is_backward)
      saved.emplace(o, stats);
    const auto done = run_call(call, setting);
    ASSERT_TRUE(done) << done.error().message;
  }
  void run_both() {
    problem.bias_gradient =
        problem.bias_kind == Bias::kPostScale && grad_bias.size() != 0;
    const bool gradient = problem.bias_gradient;
    problem.bias_gradient = false;
    run(Pass::kForward);
    problem.bias_gradient = gradient;
    if (!testing::Test::HasFatalFailure())
      run(Pass::kBackward);
  }

  /// What a head of a tensor holds.
  [[nodiscard]] Matrix head(const Tensor<T>& tensor, const Strides& strides, I64 b,
                            I64 h, bool is_query, I64 dim) const {
    Matrix rows;
    for (I64 i = 0; i < length(b, is_query); ++i) {
      rows.emplace_back();
      for (I64 d = 0; d < dim; ++d)
        rows.back().push_back(tensor[at(strides, b, h, i, d, is_query)].value());
    }
    return rows;
  }

  /// Calls `visit` with the place, and sequence, head, row and dimension, of each
  /// element of a tensor.
  template <typename Visit>
  void each(const Strides& strides, bool is_query, I64 dim, const Visit& visit) const {
    for (I64 b = 0; b < problem.batch; ++b) {
      for (I64 h = 0; h < (is_query ? problem.heads : problem.kv_heads); ++h) {
        for (I64 i = 0; i < rows(b, is_query); ++i) {
          for (I64 d = 0; d < dim; ++d)
            visit(at(strides, b, h, i, d, is_query), b, h, i, d);
        }
      }
    }
  }

  /// Tokens of a sequence.
  [[nodiscard]] I64 length(I64 b, bool is_query) const {
    const auto& tokens = is_query ? setting.tokens_q : setting.tokens_kv;
    const auto& lengths = is_query ? setting.lengths_q : setting.lengths_kv;
    if (!tokens.empty())
      return tokens[static_cast<std::size_t>(b)];
    return lengths.empty() ? longest(is_query) : lengths[static_cast<std::size_t>(b)];
  }
  /// Rows that it has in the tensors: what is behind its tokens is zeros.
  [[nodiscard]] I64 rows(I64 b, bool is_query) const {
    const auto& lengths = is_query ? setting.lengths_q : setting.lengths_kv;
    return is_packed() ? lengths[static_cast<std::size_t>(b)] : longest(is_query);
  }

  /// The terms of a head, from the problem's own words.
  [[nodiscard]] Terms terms(I64 b, I64 h) const {
    const I64 sq = length(b, true);
    const I64 skv = length(b, false);
    const I64 diagonal = attention::is_bottom_right(problem.mask) ? skv - sq : 0;
    const I64 left = problem.window_left;
    const I64 right =
        attention::is_causal(problem.mask) ? I64{0} : problem.window_right;
    Terms out;
    out.scale = setting.scale.value_or(
        static_cast<float>(1 / std::sqrt(static_cast<double>(problem.dqk))));
    out.sees = [=, this](I64 i, I64 j) {
      return (mask.size() == 0 || mask[bias_at(b, h, i, j)].bits != 0) &&
             (left < 0 || j >= i + diagonal - left) &&
             (right < 0 || j <= i + diagonal + right);
    };
    out.bias = [=, this](I64 i, I64 j) {
      if (problem.bias_kind == Bias::kPostScale)
        return bias[bias_at(b, h, i, j)].value();
      if (problem.bias_kind == Bias::kAlibi)
        return -slope(h) * static_cast<double>(std::abs(i + diagonal - j));
      return 0.0;
    };
    const auto dropped =
        static_cast<std::uint32_t>(std::lround(problem.dropout * 65536));
    const DropoutNumbers dropout{static_cast<std::uint64_t>(seed_[0].bits),
                                 static_cast<std::uint64_t>(offset_[0].bits), dropped};
    out.dropout = [=, this](I64 i, I64 j) {
      if (dropped == 0)
        return 1.0;
      return dropout.keeps(b * problem.heads + h, i, j)
                 ? 65536.0 / static_cast<double>(65536 - dropped)
                 : 0.0;
    };
    return out;
  }

  [[nodiscard]] std::size_t at(const Strides& strides, I64 b, I64 h, I64 i, I64 d,
                               bool is_query) const {
    const auto& lengths = is_query ? setting.lengths_q : setting.lengths_kv;
    I64 row = i;
    if (is_packed()) {
      for (I64 before = 0; before < b; ++before)
        row += lengths[static_cast<std::size_t>(before)];
    }
    return static_cast<std::size_t>((is_packed() ? 0 : b * strides.batch) +
                                    head_at(strides, h) + row * strides.sequence +
                                    d * strides.dim);
  }
  [[nodiscard]] I64 head_at(const Strides& strides, I64 h) const {
    const I64 group = problem.heads / problem.kv_heads;
    return strides.group == 0 ? h * strides.head
                              : h / group * strides.group + h % group * strides.head;
  }
  [[nodiscard]] bool is_packed() const { return problem.layout == Layout::kThd; }
  [[nodiscard]] I64 longest(bool is_query) const {
    return is_query ? problem.sq : problem.skv;
  }

  Problem problem;
  Setting setting;
  Tensor<T> q, k, v, o, grad_o, grad_q, grad_k, grad_v, bias;
  Tensor<test::Whole<std::uint8_t, 99>> mask;
  Tensor<T> grad_bias;
  Tensor<test::F32> stats;

 private:
  [[nodiscard]] test::Place place() const {
    return {.offset = {}, .exact = setting.exact};
  }
  [[nodiscard]] static I64 total(const std::vector<std::int32_t>& lengths) {
    I64 all = 0;
    for (const std::int32_t each : lengths) all += each;
    return all;
  }
  [[nodiscard]] std::size_t span(const Strides& strides, I64 heads, I64 rows,
                                 I64 dim) const {
    return static_cast<std::size_t>(
        (is_packed() ? 0 : (problem.batch - 1) * strides.batch) +
        head_at(strides, heads - 1) + (rows - 1) * strides.sequence +
        (dim - 1) * strides.dim + 1);
  }
  [[nodiscard]] std::size_t span_q(const Strides& strides, I64 dim) const {
    return span(strides, problem.heads,
                is_packed() ? std::max<I64>(1, total(setting.lengths_q)) : problem.sq,
                dim);
  }
  [[nodiscard]] std::size_t span_kv(const Strides& strides, I64 dim) const {
    return span(strides, problem.kv_heads,
                is_packed() ? std::max<I64>(1, total(setting.lengths_kv)) : problem.skv,
                dim);
  }
  [[nodiscard]] const void* given_bias() {
    const void* const bytes = mask.size() == 0 ? nullptr : mask.data();
    return bias.size() == 0 ? bytes : bias.data();
  }
  [[nodiscard]] std::size_t count_bias() const {
    return bias_at(problem.batch - 1, problem.heads - 1, problem.sq - 1,
                   problem.skv - 1) +
           1;
  }
  [[nodiscard]] double slope(I64 h) const {
    I64 power = 1;
    while (2 * power <= problem.heads) power *= 2;
    const auto whole = static_cast<double>(power);
    return h < power
               ? std::exp2(-8.0 * static_cast<double>(h + 1) / whole)
               : std::exp2(-4.0 * static_cast<double>(2 * (h - power) + 1) / whole);
  }
  using Ints = Tensor<test::Int>;
  using Longs = Tensor<test::Whole<std::int64_t, -77>>;
  static Ints begins(const char* name, const std::vector<std::int32_t>& lengths) {
    if (lengths.empty())
      return Ints(name, 0);
    Ints tensor(name, lengths.size() + 1);
    tensor[0].bits = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i)
      tensor[i + 1].bits = tensor[i].bits + lengths[i];
    return tensor;
  }
  static Longs one(const char* name, std::int64_t number) {
    Longs tensor(name, 1);
    tensor[0].bits = number;
    return tensor;
  }

  Tensor<test::F32> delta_;
  Ints begins_q_, begins_kv_, lengths_q_, lengths_kv_;
  Longs seed_, offset_;
};

using test::problem_of;
inline Problem problem_of(ops::DType dtype, ops::AttentionProblem problem) {
  problem.dtype = dtype;
  return problem_of(problem);
}

}  // namespace kiln::attention_test
