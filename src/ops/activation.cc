// Activations: what they check and launch. kiln/ops/activation.h says what they
// compute.

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "ops/activation_tiles.h"
#include "ops/check.h"
#include "ops/plans.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::ops {
namespace {

constexpr std::int64_t kForwardRows = 4;  // in flight per thread
constexpr TileWork kBackwardWork{.rows_in_flight = 2, .blocks_per_sm = 7};

std::string_view kernel_of(ActivationKind kind) {
  return word_of(kind, {"", "bias_gelu_tanh", "bias_gelu_erf", "squared_relu"}, "");
}

/// The number of elements.
template <typename Args>
Result<std::int64_t> check(const Args& args) {
  KILN_TRY(check_dtype(args.dtype));
  if (kernel_of(args.kind).empty())
    return refuse("kind is not set: one of ActivationKind");
  return element_count({{"rows", args.rows}, {"cols", args.cols}});
}

template <typename Args>
Launch launch_of(const Args& args, std::string_view pass, std::int64_t blocks) {
  return {.kernel = fmt::format("{}_{}", kernel_of(args.kind), pass),
          .parameters = {{"dtype", std::string(to_string(args.dtype))},
                         {"bias", args.has_bias ? "true" : "false"}},
          .extents = {{"blocks", blocks}},
          .arguments = {}};
}

template <typename Args>
Argument bias_of(const Args& args) {
  return reads("bias", args.bias,
               {args.rows > 0 ? args.cols : 0, size_bytes(args.dtype)})
      .used_if(args.has_bias, kNoBias);
}

auto tensors_of(const ActivationForward& args) {
  return std::array{writes("y", args.y, elements_of(args)),
                    reads("x", args.x, elements_of(args)), bias_of(args),
                    value("x_stride", args.cols)};
}

auto tensors_of(const ActivationBackward& args) {
  const Elements all = elements_of(args);
  return std::array{writes("dx", args.dx, all),
                    workspace("sums", args.workspace, args.workspace_bytes,
                              args.has_bias && all.count > 0),
                    reads("dy", args.dy, all),
                    reads("x", args.x, all),
                    bias_of(args),
                    value("x_stride", args.cols)};
}

}  // namespace

Result<Launches> make_plan(const ActivationForward& args, const Device& /*device*/,
                           Pointers pointers) {
  const std::int64_t elements = KILN_TRY(check(args));
  const auto tensors = tensors_of(args);
  KILN_TRY(check_memory({tensors}, pointers));
  if (elements == 0)
    return Launches{};
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  const std::int64_t parts = tiles.parts_alone(args.rows, kForwardRows, args.has_bias);
  Launch launch = launch_of(args, "fwd", tiles.across * parts);
  launch.arguments = Arguments{tensors, sizes_of(args, parts)};
  return just(std::move(launch));
}

Result<Launches> make_plan(const ActivationBackward& args, const Device& device,
                           Pointers pointers) {
  const std::uint64_t needed = KILN_TRY(workspace_bytes(device, args));
  KILN_TRY(check_workspace(args.workspace, args.workspace_bytes, needed));
  const std::int64_t parts = parts_of(args, kBackwardWork, device);
  const auto tensors = tensors_of(args);
  const auto finalized = finalize_arguments(args, args.cols, parts);
  KILN_TRY(check_memory({tensors, finalized}, pointers));
  Launches launches;
  if (parts > 0) {
    const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
    Launch launch = launch_of(args, "bwd", tiles.across * parts);
    launch.arguments = Arguments{tensors, sizes_of(args, parts)};
    launches.push_back(std::move(launch));
  }
  if (args.has_bias && args.cols > 0) {
    Launch launch = launch_of(args, "bwd", finalize_blocks(args.cols));
    launch.entry = launch.kernel + "_finalize";
    launch.arguments = Arguments{finalized};
    launches.push_back(std::move(launch));
  }
  return launches;
}

Result<std::uint64_t> workspace_bytes(const Device& device,
                                      const ActivationBackward& args) {
  KILN_TRY(check(args));
  if (!args.has_bias)
    return std::uint64_t{0};
  return static_cast<std::uint64_t>(parts_of(args, kBackwardWork, device) * args.cols) *
         sizeof(float);
}

}  // namespace kiln::ops
