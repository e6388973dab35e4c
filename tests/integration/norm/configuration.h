// The norm kernels that tests look at.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/ops/dtype.h"

namespace kiln::norm_test {

using I64 = long long;  // a kernel's kiln_i64

/// A forward kernel that CMakeLists.txt lists, and its backward kernel; or a backward
/// kernel from_output alone.
struct Configuration {
  bool layer;  // LayerNorm, else RMSNorm
  ops::DType dtype;
  ops::DType weight_dtype;
  I64 max_cols;  // 0: any
  bool residual;
  bool option;  // a bias, or the rounding of llama
  bool weight = true;
  bool from_output = false;
};
std::ostream& operator<<(std::ostream& out, const Configuration& configuration);
[[nodiscard]] std::string name_of(const Configuration& configuration);
/// The same for INSTANTIATE_TEST_SUITE_P.
inline constexpr auto kNameOf = [](const auto& info) { return name_of(info.param); };

/// Each of them.
[[nodiscard]] const std::vector<Configuration>& all_configurations();
/// Every type, class of row length and option among them, but not each with each.
[[nodiscard]] const std::vector<Configuration>& configurations();
/// Likewise of those without a weight, and of those from_output.
[[nodiscard]] const std::vector<Configuration>& other_forms();
/// The row lengths of its class that tests try: edges, what is no multiple of a vector,
/// and of `any` one more than a block keeps in registers.
[[nodiscard]] std::vector<I64> row_lengths(const Configuration& configuration);
/// A row of its class in vectors, and one that is read by elements.
[[nodiscard]] I64 aligned_length(const Configuration& configuration);
[[nodiscard]] I64 odd_length(const Configuration& configuration);

}  // namespace kiln::norm_test
