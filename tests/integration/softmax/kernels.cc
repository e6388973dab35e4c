#include "tests/integration/softmax/kernels.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "tests/support/cpu_kernel/run_plan.h"

namespace kiln_cpu {
// Generated: see CMakeLists.txt.
CpuKernels softmax_plain_kernels();
CpuKernels softmax_masked_kernels();
CpuKernels softmax_causal_kernels();
}  // namespace kiln_cpu

namespace kiln::softmax_test {
namespace {

using kiln_cpu::Variant;

template <typename Predicate>
std::vector<Variant> variants_where(Predicate predicate) {
  std::vector<Variant> some;
  std::copy_if(all_variants().begin(), all_variants().end(), std::back_inserter(some),
               predicate);
  return some;
}

}  // namespace

Kind kind_of(const Variant& variant) {
  return variant.kernel().find("upper_triang") != std::string::npos ? Kind::kCausal
         : variant.kernel().find("masked") != std::string::npos     ? Kind::kMasked
                                                                    : Kind::kPlain;
}

bool is_forward(const Variant& variant) {
  return variant.kernel().ends_with("_fwd");
}

I64 max_cols(const Variant& variant) {
  const std::string& text = variant.param("max_cols");
  return text == "any" ? std::numeric_limits<I64>::max() : std::stoll(text);
}

const std::vector<Variant>& all_variants() {
  static const auto* const all = new std::vector<Variant>(kiln_cpu::variants_of(
      {kiln_cpu::softmax_plain_kernels(), kiln_cpu::softmax_masked_kernels(),
       kiln_cpu::softmax_causal_kernels()}));
  return *all;
}

std::vector<Variant> forward_variants() {
  return variants_where(is_forward);
}
std::vector<Variant> backward_variants() {
  return variants_where([](const Variant& v) { return !is_forward(v); });
}
std::vector<Variant> variants(Kind kind) {
  return variants_where([=](const Variant& v) { return kind_of(v) == kind; });
}
std::vector<Variant> forward_variants(Kind kind) {
  return variants_where(
      [=](const Variant& v) { return is_forward(v) && kind_of(v) == kind; });
}

const Variant& variant_like(const Variant& like, std::string_view kernel) {
  return *std::find_if(
      all_variants().begin(), all_variants().end(), [&](const Variant& v) {
        return v.kernel() == kernel && v.param("dtype") == like.param("dtype") &&
               v.param("max_cols") == like.param("max_cols");
      });
}

}  // namespace kiln::softmax_test
