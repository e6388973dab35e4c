#include "ops/norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>

#include "device/known_architectures.h"
#include "ops/ceil_div.h"
#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

std::string_view operation_of(const LayerNormForward& /*args*/) {
  return "layernorm_forward";
}
std::string_view operation_of(const LayerNormBackward& /*args*/) {
  return "layernorm_backward";
}
std::string_view operation_of(const RmsNormForward& /*args*/) {
  return "rmsnorm_forward";
}
std::string_view operation_of(const RmsNormBackward& /*args*/) {
  return "rmsnorm_backward";
}

template <typename Args>
constexpr bool kIsLayerNorm = requires(Args args) {
  args.has_bias;
};

template <typename Args>
bool has_bias(const Args& args) {
  if constexpr (kIsLayerNorm<Args>)
    return args.has_bias;
  return false;
}

template <typename Args>
DType weight_dtype_of(const Args& args) {
  return args.weight_dtype == DType::kUnset ? args.dtype : args.weight_dtype;
}

/// What is added to the weight.
template <typename Args>
float weight_offset_of(const Args& args) {
  bool is_zero_centered = args.zero_centered_weight;
  if constexpr (!kIsLayerNorm<Args>)
    is_zero_centered = is_zero_centered || args.casting == RmsNormCasting::kGemma;
  return is_zero_centered ? 1.0F : 0.0F;
}

// ---- The choices, by shape and device. templates/norm/kernel.toml says what a kernel
// ---- with these parameters looks like.

/// The shortest rows that a part of a warp, a warp or a block keeps in its registers;
/// beyond, a block keeps what it can.
std::string_view max_cols_for(std::int64_t cols) {
  return cols <= 128 ? "128" : cols <= 512 ? "512" : cols <= 8192 ? "8192" : "any";
}

/// Of the forward kernels' grid, at most. A thread loads its weights once: so there are
/// few blocks, but several times as many as run at a time, so that those which end
/// early make room for others.
std::int64_t forward_blocks(const Device& device) {
  return std::int64_t{16} * std::max(1, device.multiprocessors);
}

/// Of the backward kernels' grid. Each writes a row of sums, so there are as many as
/// run at a time, 512 threads a multiprocessor (1024 for the longest rows); fewer where
/// they would not have four turns each and no multiprocessor is without one for that.
std::int64_t backward_blocks(const Device& device, std::int64_t rows,
                             std::int64_t cols) {
  const bool shares_blocks = cols <= 512;  // some rows a block
  const std::int64_t rows_a_turn = cols <= 128 ? 16 : shares_blocks ? 4 : 1;
  const std::int64_t threads = shares_blocks  ? 128
                               : cols <= 8192 ? ceil_div(cols, 512) * 32
                                              : 1024;
  const std::int64_t multiprocessors = std::max(1, device.multiprocessors);
  const std::int64_t at_a_time =
      multiprocessors * std::max<std::int64_t>(1, 512 / threads);
  const std::int64_t turns = ceil_div(rows, rows_a_turn);
  return std::min({at_a_time, turns, std::max(multiprocessors, ceil_div(turns, 4))});
}

/// What a block may have of shared memory, less a little that the kernels need anyway.
std::int64_t shared_bytes(const Device& device) {
  constexpr std::int64_t kOfKernels = 3 << 10;
  constexpr std::int64_t kOfAnyDevice = 48 << 10;
  std::int64_t bytes = device.shared_bytes_per_block;
  if (bytes == 0) {  // a device that is not here
    const auto* const known = device::find_known(device.capability);
    bytes = known != nullptr ? known->shared_bytes_per_block : kOfAnyDevice;
  }
  return bytes > kOfAnyDevice ? bytes - kOfKernels : kOfAnyDevice;
}

/// Columns per chunk of the gradients' sums, where a row does not fit in registers.
std::int64_t chunk_of(const Device& device, std::int64_t cols, bool with_bias) {
  const std::int64_t column_bytes = with_bias ? 8 : 4;
  const std::int64_t most = shared_bytes(device) / column_bytes;
  return std::min(cols, most / 1024 * 1024);
}

// ---- Arguments

/// The number of elements.
template <typename Args>
Result<std::int64_t> check_norm(const Args& args) {
  const std::string_view operation = operation_of(args);
  KILN_TRY(check_dtype(operation, args.dtype));
  const DType weight = weight_dtype_of(args);
  if (weight != args.dtype && weight != DType::kF32)
    return refuse(operation, fmt::format("weight_dtype is {}: {} or f32",
                                         to_string(weight), to_string(args.dtype)));
  if constexpr (!kIsLayerNorm<Args>) {
    if (args.casting > RmsNormCasting::kGemma)
      return refuse(operation, "casting is none of RmsNormCasting");
  }
  if constexpr (requires { args.eps; }) {
    if (!(args.eps >= 0))
      return refuse(operation, fmt::format("eps is {}", args.eps));
  }
  return element_count(operation, {{"rows", args.rows}, {"cols", args.cols}});
}

template <typename Args>
Launch norm_launch(const Args& args, std::string_view kernel, std::int64_t blocks) {
  Launch launch{
      .kernel = std::string(kernel),
      .parameters = {{"dtype", std::string(to_string(args.dtype))},
                     {"max_cols", std::string(max_cols_for(args.cols))},
                     {"residual", args.adds_residual ? "true" : "false"}},
      .extents = {{"rows", args.rows}, {"cols", args.cols}, {"blocks", blocks}},
      .arguments = {}};
  launch.parameters["weight_dtype"] =
      weight_dtype_of(args) == args.dtype ? "same" : "f32";
  if constexpr (kIsLayerNorm<Args>)
    launch.parameters["bias"] = args.has_bias ? "true" : "false";
  return launch;
}

template <typename Args>
std::int64_t partial_rows(const Args& args, const Device& device) {
  return args.rows == 0 ? 0 : backward_blocks(device, args.rows, args.cols);
}

template <typename Args>
Result<std::uint64_t> workspace_bytes(const Args& args, const Device& device) {
  if (KILN_TRY(check_norm(args)) == 0 || !args.has_dweight)
    return 0U;
  const std::int64_t floats =
      partial_rows(args, device) * args.cols * (has_bias(args) ? 2 : 1);
  return static_cast<std::uint64_t>(floats) * sizeof(float);
}

template <typename Args>
Result<Plan> backward_plan(const Args& args, const Device& device,
                           const std::string& kernel) {
  const std::uint64_t needed = KILN_TRY(workspace_bytes(args, device));
  KILN_TRY(check_workspace(operation_of(args), args.workspace, args.workspace_bytes,
                           needed));
  Plan plan;
  if (args.cols == 0)
    return plan;
  const long long rows = args.rows;
  const long long cols = args.cols;
  const long long blocks = partial_rows(args, device);
  const long long chunk = chunk_of(device, cols, has_bias(args));
  const float weight_offset = weight_offset_of(args);
  const void* const partials = args.has_dweight ? args.workspace : nullptr;
  Launch launch = norm_launch(args, kernel, blocks);
  launch.extents["chunk"] = chunk;
  if (rows > 0) {
    Launch& main = plan.emplace_back(launch);
    main.arguments = Arguments(args.dx, partials, args.dy, args.x);
    if (args.adds_residual)
      main.arguments.add(args.dsum);
    main.arguments.add(args.weight);
    if constexpr (kIsLayerNorm<Args>)
      main.arguments.add(args.mean);
    main.arguments.add(args.rstd);
    main.arguments.add(weight_offset);
    for (const long long value : {rows, cols, chunk}) main.arguments.add(value);
  }
  if (args.has_dweight) {
    launch.entry = kernel + "_finalize";
    launch.arguments = Arguments(args.dweight);
    if constexpr (kIsLayerNorm<Args>) {
      if (args.has_bias)
        launch.arguments.add(args.dbias);
    }
    launch.arguments.add(partials);
    for (const long long value : {blocks, cols}) launch.arguments.add(value);
    plan.push_back(std::move(launch));
  }
  return plan;
}

/// How many bytes what the operation is given has.
struct NormSizes {
  std::uint64_t rows;
  std::uint64_t weight;
  std::uint64_t statistics;
};

template <typename Args>
NormSizes sizes_of(const Args& args) {
  const auto rows = static_cast<std::uint64_t>(args.rows);
  const auto cols = static_cast<std::uint64_t>(args.cols);
  const std::uint64_t row_bytes = cols * size_bytes(args.dtype);
  const std::uint64_t weight_bytes = cols * size_bytes(weight_dtype_of(args));
  return {.rows = rows * row_bytes,
          .weight = weight_bytes,
          .statistics = cols == 0 ? 0 : rows * sizeof(float)};
}

template <typename Args>
Memory of_residual(const Args& args, const Memory& memory) {
  return only_if(args.adds_residual, "adds_residual is false", memory);
}

/// The memory of all forward norms; `mean` is empty where there is none, `bias` null.
template <typename Args>
Result<void> check_forward(const Args& args, const void* mean, const void* bias) {
  const NormSizes sizes = sizes_of(args);
  const std::size_t element = size_bytes(args.dtype);
  const std::size_t weight_element = size_bytes(weight_dtype_of(args));
  const auto statistics = [&](std::string_view name, const void* begin) {
    return Memory{name, begin, begin == nullptr ? 0 : sizes.statistics, sizeof(float)};
  };
  return check_memory(
      operation_of(args),
      {{"y", args.y, sizes.rows, element},
       of_residual(args, {"sum", args.sum, sizes.rows, element}),
       statistics("mean", mean),
       statistics("rstd", args.rstd)},
      {{"x", args.x, sizes.rows, element},
       of_residual(args, {"residual", args.residual, sizes.rows, element}),
       {"weight", args.weight, sizes.weight, weight_element},
       only_if(has_bias(args), "has_bias is false",
               {"bias", bias, sizes.weight, weight_element})});
}

/// The same of all backward norms.
template <typename Args>
Result<void> check_backward(const Args& args, const void* dbias, const Memory& mean) {
  const std::string_view operation = operation_of(args);
  const NormSizes sizes = sizes_of(args);
  const std::size_t element = size_bytes(args.dtype);
  const std::size_t weight_element = size_bytes(weight_dtype_of(args));
  const bool needs_workspace = args.has_dweight && sizes.rows > 0;
  if (needs_workspace && args.workspace_bytes == 0)
    return refuse(operation, "workspace_bytes is 0");
  return check_memory(
      operation,
      {{"dx", args.dx, sizes.rows, element},
       only_if(args.has_dweight, "has_dweight is false",
               {"dweight", args.dweight, sizes.weight, weight_element}),
       only_if(args.has_dweight && has_bias(args),
               args.has_dweight ? "has_bias is false" : "has_dweight is false",
               {"dbias", dbias, sizes.weight, weight_element}),
       {"workspace", args.workspace, needs_workspace ? args.workspace_bytes : 0,
        sizeof(float)}},
      {{"dy", args.dy, sizes.rows, element},
       {"x", args.x, sizes.rows, element},
       of_residual(args, {"dsum", args.dsum, sizes.rows, element}),
       {"weight", args.weight, sizes.weight, weight_element},
       mean,
       {"rstd", args.rstd, sizes.statistics, sizeof(float)}});
}

}  // namespace

Result<Plan> plan(const LayerNormForward& args, const Device& device) {
  if (KILN_TRY(check_norm(args)) == 0)
    return Plan{};
  Launch launch = norm_launch(args, "layernorm_fwd", forward_blocks(device));
  Arguments& arguments = launch.arguments;
  arguments.add(args.y);
  if (args.adds_residual)
    arguments.add(args.sum);
  arguments.add(args.mean);
  arguments.add(args.rstd);
  arguments.add(args.x);
  if (args.adds_residual)
    arguments.add(args.residual);
  arguments.add(args.weight);
  if (args.has_bias)
    arguments.add(args.bias);
  arguments.add(weight_offset_of(args));
  arguments.add(args.eps);
  for (const long long value : {args.rows, args.cols}) arguments.add(value);
  return Plan{std::move(launch)};
}

Result<Plan> plan(const RmsNormForward& args, const Device& device) {
  if (KILN_TRY(check_norm(args)) == 0)
    return Plan{};
  Launch launch = norm_launch(args, "rmsnorm_fwd", forward_blocks(device));
  // A float is as it is: no rounding to speak of.
  const bool rounds =
      args.casting == RmsNormCasting::kLlama && args.dtype != DType::kF32;
  launch.parameters["llama"] = rounds ? "true" : "false";
  Arguments& arguments = launch.arguments;
  arguments.add(args.y);
  if (args.adds_residual)
    arguments.add(args.sum);
  arguments.add(args.rstd);
  arguments.add(args.x);
  if (args.adds_residual)
    arguments.add(args.residual);
  arguments.add(args.weight);
  arguments.add(weight_offset_of(args));
  arguments.add(args.eps);
  for (const long long value : {args.rows, args.cols}) arguments.add(value);
  return Plan{std::move(launch)};
}

Result<Plan> plan(const LayerNormBackward& args, const Device& device) {
  return backward_plan(args, device, "layernorm_bwd");
}
Result<Plan> plan(const RmsNormBackward& args, const Device& device) {
  return backward_plan(args, device, "rmsnorm_bwd");
}

Result<std::uint64_t> layernorm_backward_workspace_bytes(const LayerNormBackward& args,
                                                         const Device& device) {
  return workspace_bytes(args, device);
}
Result<std::uint64_t> rmsnorm_backward_workspace_bytes(const RmsNormBackward& args,
                                                       const Device& device) {
  return workspace_bytes(args, device);
}

Result<void> check_pointers(const LayerNormForward& args) {
  return check_forward(args, args.mean, args.bias);
}

Result<void> check_pointers(const RmsNormForward& args) {
  return check_forward(args, nullptr, nullptr);
}

Result<void> check_pointers(const LayerNormBackward& args) {
  return check_backward(args, args.dbias,
                        {"mean", args.mean, sizes_of(args).statistics, sizeof(float)});
}

Result<void> check_pointers(const RmsNormBackward& args) {
  return check_backward(args, nullptr, {"mean", nullptr, 0, sizeof(float)});
}

}  // namespace kiln::ops
