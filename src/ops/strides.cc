#include "ops/strides.h"

#include <algorithm>
#include <vector>

#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {

Result<std::int64_t> span_of(std::string_view tensor,
                             std::span<const Dimension> dimensions) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  std::int64_t last = 0;
  bool empty = false;
  for (const Dimension& each : dimensions) {
    empty = empty || each.size == 0;
    if (each.size <= 1)
      continue;
    if (each.stride < 0)
      return refuse("{}: the stride of {} is {}: it is 0 or more", tensor, each.name,
                    each.stride);
    if (each.stride > (kMost - last) / each.size)
      return refuse("{} reaches over 2^60 elements or more, up to {} times {} of {}",
                    tensor, each.size, each.stride, each.name);
    last += (each.size - 1) * each.stride;
  }
  return empty ? 0 : last + 1;
}

Result<void> check_apart(std::string_view tensor,
                         std::span<const Dimension> dimensions) {
  std::vector<Dimension> inner_first;
  std::ranges::copy_if(dimensions, std::back_inserter(inner_first),
                       [](const Dimension& each) { return each.size > 1; });
  std::ranges::sort(inner_first, {}, &Dimension::stride);
  for (std::size_t i = 0; i < inner_first.size(); ++i) {
    const std::int64_t span =
        KILN_TRY(span_of(tensor, std::span(inner_first).first(i)));
    if (inner_first[i].stride < span)
      return refuse(
          "{}: two elements would share an address: the stride of {} is {}, but the "
          "inner dimensions span {} elements",
          tensor, inner_first[i].name, inner_first[i].stride, span);
  }
  return {};
}

}  // namespace kiln::ops
