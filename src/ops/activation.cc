#include "ops/activation.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "ops/activation_tiles.h"
#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

constexpr std::string_view kForward = "activation_forward";
constexpr std::string_view kBackward = "activation_backward";

constexpr std::int64_t kForwardRows = 4;  // in flight
constexpr TileWork kBackwardWork{.rows_in_flight = 2, .blocks_per_sm = 7};

std::string_view kernel_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGeluTanh:
      return "bias_gelu_tanh";
    case ActivationKind::kGeluErf:
      return "bias_gelu_erf";
    case ActivationKind::kSquaredRelu:
      return "squared_relu";
    case ActivationKind::kUnset:
      break;
  }
  return {};
}

/// How many elements there are.
template <typename Args>
Result<std::int64_t> check(std::string_view operation, const Args& args) {
  KILN_TRY(check_dtype(operation, args.dtype));
  if (kernel_of(args.kind).empty())
    return refuse(operation, "kind is not set: one of ActivationKind");
  return element_count(operation, {{"rows", args.rows}, {"cols", args.cols}});
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
const void* bias_of(const Args& args) {
  return args.has_bias ? args.bias : nullptr;
}

/// Of the gradient of the bias; 0 without rows.
std::int64_t parts_of(const ActivationBackward& args, const Device& device) {
  if (args.rows == 0 || args.cols == 0)
    return 0;
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  return args.has_bias
             ? tiles.parts_with_sums(args.rows, kBackwardWork, device)
             : tiles.parts_alone(args.rows, kBackwardWork.rows_in_flight, false);
}

template <typename Args>
std::uint64_t tensor_bytes(const Args& args) {
  return static_cast<std::uint64_t>(args.rows * args.cols) * size_bytes(args.dtype);
}
template <typename Args>
std::uint64_t bias_bytes(const Args& args) {
  return static_cast<std::uint64_t>(args.cols) * size_bytes(args.dtype);
}

}  // namespace

Result<Plan> plan(const ActivationForward& args, const Device& /*device*/) {
  if (KILN_TRY(check(kForward, args)) == 0)
    return Plan{};
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  const long long rows = args.rows;
  const long long cols = args.cols;
  const long long parts = tiles.parts_alone(rows, kForwardRows, args.has_bias);
  Launch launch = launch_of(args, "fwd", tiles.across * parts);
  launch.arguments = Arguments(args.y, args.x, bias_of(args), cols, rows, cols, parts);
  return Plan{std::move(launch)};
}

Result<Plan> plan(const ActivationBackward& args, const Device& device) {
  const std::int64_t elements = KILN_TRY(check(kBackward, args));
  const long long rows = args.rows;
  const long long cols = args.cols;
  const long long parts = parts_of(args, device);
  KILN_TRY(
      check_workspace(kBackward, args.workspace, args.workspace_bytes,
                      KILN_TRY(activation_backward_workspace_bytes(args, device))));
  Plan launches;
  if (elements > 0) {
    const Tiles tiles = Tiles::of(cols, size_bytes(args.dtype));
    Launch launch = launch_of(args, "bwd", tiles.across * parts);
    launch.arguments = Arguments(args.dx, args.workspace, args.dy, args.x,
                                 bias_of(args), cols, rows, cols, parts);
    launches.push_back(std::move(launch));
  }
  if (args.has_bias && cols > 0) {
    Launch launch = launch_of(args, "bwd", finalize_blocks(cols));
    launch.entry = launch.kernel + "_finalize";
    const void* const sums = args.workspace;
    launch.arguments = Arguments(args.dbias, sums, parts, cols);
    launches.push_back(std::move(launch));
  }
  return launches;
}

Result<std::uint64_t> activation_backward_workspace_bytes(
    const ActivationBackward& args, const Device& device) {
  KILN_TRY(check(kBackward, args));
  if (!args.has_bias)
    return std::uint64_t{0};
  return static_cast<std::uint64_t>(parts_of(args, device) * args.cols) * sizeof(float);
}

Result<void> check_pointers(const ActivationForward& args) {
  const std::uint64_t bytes = tensor_bytes(args);
  const std::uint64_t bias = bias_bytes(args);
  const std::size_t element = size_bytes(args.dtype);
  return check_memory(
      kForward, {{"y", args.y, bytes, element}},
      {{"x", args.x, bytes, element},
       of_bias(args, {"bias", args.bias, bytes > 0 ? bias : 0, element})});
}

Result<void> check_pointers(const ActivationBackward& args) {
  const std::uint64_t bytes = tensor_bytes(args);
  const std::uint64_t bias = bias_bytes(args);
  const std::size_t element = size_bytes(args.dtype);
  return check_memory(
      kBackward,
      {{"dx", args.dx, bytes, element},
       of_bias(args, {"dbias", args.dbias, bias, element}),
       workspace_of(args, bytes)},
      {{"dy", args.dy, bytes, element},
       {"x", args.x, bytes, element},
       of_bias(args, {"bias", args.bias, bytes > 0 ? bias : 0, element})});
}

}  // namespace kiln::ops
