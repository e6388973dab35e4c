#include "tests/integration/softmax/kernels.h"

#include <limits>

namespace kiln::softmax_test {

Kind kind_of(const Variant& variant) {
  return kind_of(variant.kernel());
}

I64 max_cols(const Variant& variant) {
  const std::string& text = variant.param("max_cols");
  return text == "any" ? std::numeric_limits<I64>::max() : std::stoll(text);
}

std::vector<Variant> forward_variants() {
  return kernels_where(&Variant::is_forward);
}
std::vector<Variant> backward_variants() {
  return kernels_where([](const Variant& v) { return !v.is_forward(); });
}
std::vector<Variant> variants(Kind kind) {
  return kernels_where([=](const Variant& v) { return kind_of(v) == kind; });
}
std::vector<Variant> forward_variants(Kind kind) {
  return kernels_where(
      [=](const Variant& v) { return v.is_forward() && kind_of(v) == kind; });
}

const Variant& variant_like(const Variant& like, std::string_view kernel) {
  return *std::ranges::find_if(kernels_of_program(), [&](const Variant& v) {
    return v.kernel() == kernel && v.param("dtype") == like.param("dtype") &&
           v.param("max_cols") == like.param("max_cols");
  });
}

}  // namespace kiln::softmax_test
