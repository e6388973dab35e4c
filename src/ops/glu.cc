#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "interface/enumeration_words.h"
#include "ops/activation_tiles.h"
#include "ops/check.h"
#include "ops/plans.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

constexpr std::int64_t kGluForwardRows = 2;  // in flight per thread

TileWork backward_work(const GluBackward& args) {
  return {.rows_in_flight = 2,
          .blocks_per_sm = args.kind == GluKind::kClampedSwiglu ? 3 : 4};
}

/// How many elements y has.
template <typename Args>
Result<std::int64_t> check_glu(const Args& args) {
  KILN_TRY(check_dtype(args.dtype));
  if (word_of(args.kind) == kUnsetWord)
    return refuse("kind is not set: one of GluKind");
  if (args.layout != GluLayout::kPacked && args.layout != GluLayout::kSplit)
    return refuse("layout is none of GluLayout");
  if (args.has_bias && args.has_weight)
    return refuse("has_bias and has_weight: one of them, not both");
  if (args.kind == GluKind::kClampedSwiglu) {
    if (!(args.limit > 0))
      return refuse("limit is {}: above 0", args.limit);
    if (!std::isfinite(args.alpha) || !std::isfinite(args.offset))
      return refuse("alpha is {} and offset {}: finite", args.alpha, args.offset);
  }
  const std::int64_t inputs = KILN_TRY(
      element_count({{"rows", args.rows}, {"halves", 2}, {"cols", args.cols}}));
  return inputs / 2;
}

template <typename Args>
Launch glu_launch(const Args& args, std::string_view pass, std::int64_t blocks) {
  return {.kernel = fmt::format("{}_{}", word_of(args.kind), pass),
          .parameters = {{"dtype", std::string(to_string(args.dtype))},
                         {"bias", args.has_bias ? "true" : "false"},
                         {"weighted", args.has_weight ? "true" : "false"}},
          .extents = {{"blocks", blocks}, {"cols", args.cols}},
          .arguments = {}};
}

/// `linear`; for a packed `x` that is not null, its second half.
template <typename Args>
const void* linear_of(const Args& args, const void* x, const void* linear) {
  if (args.layout == GluLayout::kSplit || x == nullptr)
    return linear;
  return static_cast<const std::byte*>(x) +
         static_cast<std::size_t>(args.cols) * size_bytes(args.dtype);
}

constexpr std::string_view kPacked = "layout is kPacked";

/// The elements of x: both halves if x is packed.
template <typename Args>
Elements x_of(const Args& args) {
  const Elements half = elements_of(args);
  return {args.layout == GluLayout::kPacked ? 2 * half.count : half.count, half.bytes};
}

/// The arguments that all kernels take after the outputs.
template <typename Args>
auto inputs_of(const Args& args) {
  const Elements half = elements_of(args);
  const bool is_split = args.layout == GluLayout::kSplit;
  const bool is_clamped = args.kind == GluKind::kClampedSwiglu;
  // dweight is computed even without columns.
  const bool reads_weight = half.count > 0 || std::is_same_v<Args, GluBackward>;
  return std::array{
      reads("x", args.x, x_of(args)),
      reads("linear", args.linear, half)
          .used_if(is_split, kPacked)
          .given_as(linear_of(args, args.x, args.linear)),
      reads("bias", args.bias, {half.count > 0 ? 2 * args.cols : 0, half.bytes})
          .used_if(args.has_bias, kNoBias),
      reads("weight", args.weight, floats(reads_weight ? args.rows : 0))
          .used_if(args.has_weight, kNoWeight),
      value("alpha", args.alpha).exists_if(is_clamped),
      value("limit", args.limit).exists_if(is_clamped),
      value("offset", args.offset).exists_if(is_clamped),
      value("x_stride", is_split ? args.cols : 2 * args.cols)};
}

/// The outputs of the backward kernel, then dy.
auto outputs_of(const GluBackward& args) {
  const Elements half = elements_of(args);
  const Argument dweight = writes("sums", args.dweight, floats(args.rows), "dweight")
                               .exists_if(args.has_weight, kNoWeight);
  const Argument sums = workspace("sums", args.workspace, args.workspace_bytes,
                                  args.has_bias && half.count > 0);
  return std::array{writes("dx", args.dx, x_of(args)),
                    writes("dlinear", args.dlinear, half)
                        .used_if(args.layout == GluLayout::kSplit, kPacked)
                        .given_as(linear_of(args, args.dx, args.dlinear)),
                    dweight, args.has_weight ? sums.only_checked() : sums,
                    reads("dy", args.dy, half)};
}

}  // namespace

Result<Launches> make_plan(const GluForward& args, const Device& /*device*/,
                           Pointers pointers) {
  const std::int64_t elements = KILN_TRY(check_glu(args));
  const std::array outputs{writes("y", args.y, elements_of(args))};
  const auto inputs = inputs_of(args);
  KILN_TRY(check_memory({outputs, inputs}, pointers));
  if (elements == 0)
    return Launches{};
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  const std::int64_t parts =
      tiles.parts_alone(args.rows, kGluForwardRows, args.has_bias);
  Launch launch = glu_launch(args, "fwd", tiles.across * parts);
  launch.arguments = Arguments{outputs, inputs, sizes_of(args, parts)};
  return just(std::move(launch));
}

Result<Launches> make_plan(const GluBackward& args, const Device& device,
                           Pointers pointers) {
  const std::uint64_t needed = KILN_TRY(workspace_bytes(device, args));
  KILN_TRY(check_workspace(args.workspace, args.workspace_bytes, needed));
  const std::int64_t parts = parts_of(args, backward_work(args), device);
  const auto outputs = outputs_of(args);
  const auto inputs = inputs_of(args);
  const auto finalized = finalize_arguments(args, 2 * args.cols, parts);
  KILN_TRY(check_memory({outputs, finalized, inputs}, pointers));
  Launches launches;
  // Without columns each row's dweight is 0, which a kernel still has to write.
  if (parts > 0 || (args.has_weight && args.rows > 0)) {
    const std::int64_t blocks =
        args.has_weight ? args.rows
                        : Tiles::of(args.cols, size_bytes(args.dtype)).across * parts;
    Launch launch = glu_launch(args, "bwd", blocks);
    launch.arguments = Arguments{outputs, inputs, sizes_of(args, parts)};
    launches.push_back(std::move(launch));
  }
  if (args.has_bias && args.cols > 0) {
    Launch launch = glu_launch(args, "bwd", finalize_blocks(2 * args.cols));
    launch.entry = launch.kernel + "_finalize";
    launch.arguments = Arguments{finalized};
    launches.push_back(std::move(launch));
  }
  return launches;
}

Result<std::uint64_t> workspace_bytes(const Device& device, const GluBackward& args) {
  KILN_TRY(check_glu(args));
  if (!args.has_bias)
    return std::uint64_t{0};
  return static_cast<std::uint64_t>(parts_of(args, backward_work(args), device) * 2 *
                                    args.cols) *
         sizeof(float);
}

}  // namespace kiln::ops
