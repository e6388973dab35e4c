// The softmax kernels that run on the CPU, and one problem for one of them.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/integration/softmax/shape.h"
#include "tests/integration/softmax/tensors.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln::softmax_test {

using kiln_cpu::kernels_of_program;
using kiln_cpu::kernels_where;
using kiln_cpu::kNameOfVariant;
using kiln_cpu::Variant;

[[nodiscard]] inline Kind kind_of(const Variant& variant) {
  return kind_of(variant.kernel());
}

[[nodiscard]] inline bool is_uniform(const Variant& variant) {
  return variant.name().ends_with("masked_row=uniform");
}

/// The longest row it takes.
[[nodiscard]] inline I64 max_cols(const Variant& variant) {
  const std::string& text = variant.param("max_cols");
  return text == "any" ? std::numeric_limits<I64>::max() : std::stoll(text);
}

[[nodiscard]] inline std::vector<Variant> forward_variants() {
  return kernels_where(&Variant::is_forward);
}
[[nodiscard]] inline std::vector<Variant> variants(Kind kind) {
  return kernels_where([=](const Variant& v) { return kind_of(v) == kind; });
}
[[nodiscard]] inline std::vector<Variant> forward_variants(Kind kind) {
  return kernels_where(
      [=](const Variant& v) { return v.is_forward() && kind_of(v) == kind; });
}

template <typename T>
class Problem : public Tensors<T> {
 public:
  Problem(const Variant& variant, const Shape& shape, const Setting& setting)
      : Tensors<T>({kind_of(variant), variant.is_forward(), is_uniform(variant)}, shape,
                   setting),
        variant_(variant) {}

  /// A launch that writes `out` and can write nothing else. What it does wrong is a
  /// failure of the test.
  void run_into(Tensor<T>& out, const kiln_cpu::LaunchOptions& options) const {
    auto geometry = variant_.geometry(
        {{"rows", this->shape().rows()}, {"cols", this->shape().cols}});
    ASSERT_TRUE(geometry) << geometry.error().message;
    geometry->grid[0] = std::min(geometry->grid[0], this->setting().most_blocks);
    const auto done =
        this->launch_into(out, std::identity(), [&](const auto... arguments) {
          return variant_.launch(*geometry, options, arguments...);
        });
    ASSERT_TRUE(done) << done.error().message;
  }

  [[nodiscard]] Tensor<T> run() const {
    Tensor<T> out = this->make_out();
    run_into(out, {.order = this->setting().order});
    return out;
  }
  [[nodiscard]] double run_and_check() const { return this->check(run()); }

 private:
  const Variant& variant_;
};

}  // namespace kiln::softmax_test
