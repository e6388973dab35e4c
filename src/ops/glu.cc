#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "ops/activation.h"
#include "ops/activation_tiles.h"
#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

constexpr std::string_view kGluForward = "glu_forward";
constexpr std::string_view kGluBackward = "glu_backward";

constexpr std::int64_t kGluForwardRows = 2;  // in flight

TileWork backward_work(const GluBackward& args) {
  return {.rows_in_flight = 2,
          .blocks_per_sm = args.kind == GluKind::kClampedSwiGlu ? 3 : 4};
}

std::string_view kernel_of(GluKind kind) {
  switch (kind) {
    case GluKind::kSwiGlu:
      return "swiglu";
    case GluKind::kGeGluTanh:
      return "geglu_tanh";
    case GluKind::kGeGluErf:
      return "geglu_erf";
    case GluKind::kReGlu:
      return "reglu";
    case GluKind::kClampedSwiGlu:
      return "clamped_swiglu";
    case GluKind::kUnset:
      break;
  }
  return {};
}

/// How many elements y has.
template <typename Args>
Result<std::int64_t> check_glu(std::string_view operation, const Args& args) {
  KILN_TRY(check_dtype(operation, args.dtype));
  if (kernel_of(args.kind).empty())
    return refuse(operation, "kind is not set: one of GluKind");
  if (args.layout != GluLayout::kPacked && args.layout != GluLayout::kSplit)
    return refuse(operation, "layout is none of GluLayout");
  if (args.has_bias && args.has_weight)
    return refuse(operation, "has_bias and has_weight: one of them, not both");
  if (args.kind == GluKind::kClampedSwiGlu) {
    if (!(args.limit > 0))
      return refuse(operation, fmt::format("limit is {}: above 0", args.limit));
    if (!std::isfinite(args.alpha) || !std::isfinite(args.offset))
      return refuse(operation, fmt::format("alpha is {} and offset {}: finite",
                                           args.alpha, args.offset));
  }
  const std::int64_t inputs = KILN_TRY(element_count(
      operation, {{"rows", args.rows}, {"halves", 2}, {"cols", args.cols}}));
  return inputs / 2;
}

template <typename Args>
Launch glu_launch(const Args& args, std::string_view pass, std::int64_t blocks) {
  return {.kernel = fmt::format("{}_{}", kernel_of(args.kind), pass),
          .parameters = {{"dtype", std::string(to_string(args.dtype))},
                         {"bias", args.has_bias ? "true" : "false"},
                         {"weighted", args.has_weight ? "true" : "false"}},
          .extents = {{"blocks", blocks}, {"cols", args.cols}},
          .arguments = {}};
}

/// `linear`, or the second half of a packed `x`; null where that is.
template <typename Args, typename Pointer>
Pointer linear_of(const Args& args, Pointer x, Pointer linear) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const std::byte,
                                  std::byte>;
  if (args.layout == GluLayout::kSplit || x == nullptr)
    return linear;
  return static_cast<Byte*>(x) +
         static_cast<std::size_t>(args.cols) * size_bytes(args.dtype);
}

/// What follows the tensors in every kernel's arguments.
template <typename Args>
void add_numbers(const Args& args, long long parts, Arguments& to) {
  if (args.kind == GluKind::kClampedSwiGlu) {
    to.add(args.alpha);
    to.add(args.limit);
    to.add(args.offset);
  }
  const long long rows = args.rows;
  const long long cols = args.cols;
  to.add(args.layout == GluLayout::kPacked ? 2 * cols : cols);
  to.add(rows);
  to.add(cols);
  to.add(parts);
}

template <typename Args>
const void* glu_bias(const Args& args) {
  return args.has_bias ? args.bias : nullptr;
}
template <typename Args>
const float* weight_of(const Args& args) {
  return args.has_weight ? args.weight : nullptr;
}

/// 0 without elements.
std::int64_t parts_of(const GluBackward& args, const Device& device) {
  if (args.rows == 0 || args.cols == 0)
    return 0;
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  const TileWork work = backward_work(args);
  return args.has_bias ? tiles.parts_with_sums(args.rows, work, device)
                       : tiles.parts_alone(args.rows, work.rows_in_flight, false);
}

/// The sizes of what an operation touches.
struct Sizes {
  std::uint64_t y;
  std::uint64_t x;       // both halves where it is packed
  std::uint64_t linear;  // 0 where it is
  std::uint64_t bias;
  std::uint64_t weight;

  template <typename Args>
  explicit Sizes(const Args& args) {
    const bool packed = args.layout == GluLayout::kPacked;
    const auto rows = static_cast<std::uint64_t>(args.rows);
    const std::uint64_t row =
        static_cast<std::uint64_t>(args.cols) * size_bytes(args.dtype);
    y = rows * row;
    x = packed ? 2 * y : y;
    linear = packed ? 0 : y;
    bias = 2 * row;
    weight = rows * sizeof(float);
  }
};

template <typename Args>
Memory of_split(const Args& args, const Memory& memory) {
  return only_if(args.layout == GluLayout::kSplit, "layout is kPacked", memory);
}
template <typename Args>
Memory of_weight(const Args& args, const Memory& memory) {
  return only_if(args.has_weight, "has_weight is false", memory);
}

}  // namespace

Result<Plan> plan(const GluForward& args, const Device& /*device*/) {
  if (KILN_TRY(check_glu(kGluForward, args)) == 0)
    return Plan{};
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  const std::int64_t parts =
      tiles.parts_alone(args.rows, kGluForwardRows, args.has_bias);
  Launch launch = glu_launch(args, "fwd", tiles.across * parts);
  launch.arguments = Arguments(args.y, args.x, linear_of(args, args.x, args.linear),
                               glu_bias(args), weight_of(args));
  add_numbers(args, parts, launch.arguments);
  return Plan{std::move(launch)};
}

Result<Plan> plan(const GluBackward& args, const Device& device) {
  const std::uint64_t needed = KILN_TRY(glu_backward_workspace_bytes(args, device));
  KILN_TRY(check_workspace(kGluBackward, args.workspace, args.workspace_bytes, needed));
  const long long parts = parts_of(args, device);
  Plan launches;
  // Without columns a row's dweight is 0 all the same.
  if (parts > 0 || (args.has_weight && args.rows > 0)) {
    const std::int64_t blocks =
        args.has_weight ? args.rows
                        : Tiles::of(args.cols, size_bytes(args.dtype)).across * parts;
    Launch launch = glu_launch(args, "bwd", blocks);
    void* const sums = args.has_weight ? args.dweight : args.workspace;
    launch.arguments = Arguments(args.dx, linear_of(args, args.dx, args.dlinear), sums,
                                 args.dy, args.x, linear_of(args, args.x, args.linear),
                                 glu_bias(args), weight_of(args));
    add_numbers(args, parts, launch.arguments);
    launches.push_back(std::move(launch));
  }
  if (args.has_bias && args.cols > 0) {
    const long long columns = 2 * args.cols;
    Launch launch = glu_launch(args, "bwd", finalize_blocks(columns));
    launch.entry = launch.kernel + "_finalize";
    const void* const sums = args.workspace;
    launch.arguments = Arguments(args.dbias, sums, parts, columns);
    launches.push_back(std::move(launch));
  }
  return launches;
}

Result<std::uint64_t> glu_backward_workspace_bytes(const GluBackward& args,
                                                   const Device& device) {
  KILN_TRY(check_glu(kGluBackward, args));
  if (!args.has_bias)
    return std::uint64_t{0};
  return static_cast<std::uint64_t>(parts_of(args, device) * 2 * args.cols) *
         sizeof(float);
}

Result<void> check_pointers(const GluForward& args) {
  const Sizes sizes(args);
  const std::size_t element = size_bytes(args.dtype);
  return check_memory(
      kGluForward, {{"y", args.y, sizes.y, element}},
      {{"x", args.x, sizes.x, element},
       of_split(args, {"linear", args.linear, sizes.linear, element}),
       of_bias(args, {"bias", args.bias, sizes.y > 0 ? sizes.bias : 0, element}),
       of_weight(args, {"weight", args.weight, sizes.y > 0 ? sizes.weight : 0,
                        sizeof(float)})});
}

Result<void> check_pointers(const GluBackward& args) {
  const Sizes sizes(args);
  const std::size_t element = size_bytes(args.dtype);
  return check_memory(
      kGluBackward,
      {{"dx", args.dx, sizes.x, element},
       of_split(args, {"dlinear", args.dlinear, sizes.linear, element}),
       of_bias(args, {"dbias", args.dbias, sizes.bias, element}),
       of_weight(args, {"dweight", args.dweight, sizes.weight, sizeof(float)}),
       workspace_of(args, sizes.y)},
      {{"dy", args.dy, sizes.y, element},
       {"x", args.x, sizes.x, element},
       of_split(args, {"linear", args.linear, sizes.linear, element}),
       of_bias(args, {"bias", args.bias, sizes.y > 0 ? sizes.bias : 0, element}),
       of_weight(args, {"weight", args.weight, sizes.weight, sizeof(float)})});
}

}  // namespace kiln::ops
