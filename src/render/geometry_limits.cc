#include "render/geometry_limits.h"

#include <array>
#include <string_view>

#include "util/try.h"

namespace kiln::render {

namespace {

using Limits = std::array<std::int64_t, 3>;

Result<std::array<std::uint32_t, 3>> evaluate_extent(
    const std::vector<Expression>& expressions, const Limits& limits,
    std::string_view what, std::span<const Value> values) {
  std::array<std::uint32_t, 3> extent{1, 1, 1};
  for (std::size_t axis = 0; axis < expressions.size(); ++axis) {
    const std::int64_t value = KILN_TRY(expressions[axis].evaluate(values));
    if (value < 1 || value > limits[axis])
      return refuse("{}.{} is {}; CUDA allows 1 to {} ('{}')", what, "xyz"[axis], value,
                    limits[axis], expressions[axis].text());
    extent[axis] = static_cast<std::uint32_t>(value);
  }
  return extent;
}

}  // namespace

Result<Geometry> evaluate_geometry(const EntryGeometry& declared,
                                   std::span<const Value> values) {
  constexpr Limits kGrid{kMaxGridX, kMaxGridYz, kMaxGridYz};
  constexpr Limits kBlock{kMaxBlockXy, kMaxBlockXy, kMaxBlockZ};
  Geometry out;
  out.grid = KILN_TRY(evaluate_extent(declared.grid, kGrid, "grid", values));
  out.block = KILN_TRY(evaluate_extent(declared.block, kBlock, "block", values));
  const std::int64_t threads = std::int64_t{out.block[0]} * out.block[1] * out.block[2];
  if (threads > kMaxBlockThreads)
    return refuse("a block of {} threads; CUDA allows 1 to {}", threads,
                  kMaxBlockThreads);
  const std::int64_t shared = KILN_TRY(declared.shared_bytes.evaluate(values));
  if (shared < 0 || shared > kMaxSharedBytes)
    return refuse("{} bytes of dynamic shared memory; CUDA allows 0 to {}", shared,
                  kMaxSharedBytes);
  out.shared_bytes = static_cast<std::uint32_t>(shared);
  return out;
}

}  // namespace kiln::render
