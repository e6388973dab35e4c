// One problem for one kernel on the CPU.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/integration/softmax/kernels.h"
#include "tests/integration/softmax/tensors.h"

namespace kiln::softmax_test {

template <typename T>
class Problem : public Tensors<T> {
 public:
  Problem(const Variant& variant, const Shape& shape, const Setting& setting)
      : Tensors<T>({kind_of(variant), variant.is_forward()}, shape, setting),
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
