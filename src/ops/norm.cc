// LayerNorm and RMSNorm: what they check and launch. kiln/ops/norm.h says what they
// compute.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "device/known_architectures.h"
#include "ops/ceil_div.h"
#include "ops/check.h"
#include "ops/plans.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

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

/// Whether there are gradients of weight and bias.
template <typename Args>
bool sums_columns(const Args& args) {
  return args.has_dweight && args.has_weight;
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

/// The class of row lengths: part of a warp, a warp or a block keeps rows of up to 128,
/// 512 or 8192 columns in registers. Of longer rows a block keeps as much as it can.
std::string_view max_cols_for(std::int64_t cols) {
  return cols <= 128 ? "128" : cols <= 512 ? "512" : cols <= 8192 ? "8192" : "any";
}

/// The most blocks of a forward kernel's grid. Each thread loads its weights once, so
/// there are few blocks; but several times as many as run at once, so that blocks that
/// end early make room for others.
std::int64_t forward_blocks(const Device& device) {
  return std::int64_t{16} * std::max(1, device.multiprocessors);
}

/// The blocks of a backward kernel's grid. Each block writes a row of sums, so there
/// are at most as many as run at once (512 threads per multiprocessor, 1024 for the
/// longest rows). With few rows there are fewer: one per four turns, but at least one
/// per multiprocessor, if there are that many turns.
std::int64_t backward_blocks(const Device& device, std::int64_t rows,
                             std::int64_t cols) {
  const bool shares_blocks = cols <= 512;  // a block works on several rows
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

/// The shared memory per block, less a little that the kernels need anyway.
std::int64_t shared_bytes(const Device& device) {
  constexpr std::int64_t kOfKernels = 3 << 10;
  constexpr std::int64_t kOfAnyDevice = 48 << 10;
  std::int64_t bytes = device.shared_bytes_per_block;
  if (bytes == 0) {  // a device that is not on this machine
    const auto* const known = device::find_known(device.capability);
    bytes = known != nullptr ? known->shared_kib_per_block * 1024 : kOfAnyDevice;
  }
  return bytes > kOfAnyDevice ? bytes - kOfKernels : kOfAnyDevice;
}

/// Columns per chunk of the gradients' sums, if a row does not fit in registers.
std::int64_t chunk_of(const Device& device, std::int64_t cols, bool with_bias) {
  const std::int64_t column_bytes = with_bias ? 8 : 4;
  const std::int64_t most = shared_bytes(device) / column_bytes;
  return std::min(cols, most / 1024 * 1024);
}

// ---- Arguments

/// The number of elements.
template <typename Args>
Result<std::int64_t> check_norm(const Args& args) {
  KILN_TRY(check_dtype(args.dtype));
  const DType weight = weight_dtype_of(args);
  if (weight != args.dtype && weight != DType::kF32)
    return refuse("weight_dtype is {}: {} or f32", to_string(weight),
                  to_string(args.dtype));
  if constexpr (!kIsLayerNorm<Args>) {
    if (args.casting > RmsNormCasting::kGemma)
      return refuse("casting is none of RmsNormCasting");
  }
  if (has_bias(args) && !args.has_weight)
    return refuse("has_bias is true, and has_weight is false: a bias needs a weight");
  if constexpr (requires { args.eps; }) {
    if (!(args.eps >= 0))
      return refuse("eps is {}", args.eps);
  }
  return element_count({{"rows", args.rows}, {"cols", args.cols}});
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
  launch.parameters["weight"] = args.has_weight ? "true" : "false";
  launch.parameters["weight_dtype"] =
      weight_dtype_of(args) == args.dtype || !args.has_weight ? "same" : "f32";
  if constexpr (kIsLayerNorm<Args>)
    launch.parameters["bias"] = args.has_bias ? "true" : "false";
  return launch;
}

template <typename Args>
std::int64_t partial_rows(const Args& args, const Device& device) {
  return args.rows == 0 ? 0 : backward_blocks(device, args.rows, args.cols);
}

template <typename Args>
Result<std::uint64_t> bytes_of_partials(const Args& args, const Device& device) {
  if (KILN_TRY(check_norm(args)) == 0 || !sums_columns(args))
    return 0U;
  const std::int64_t floats =
      partial_rows(args, device) * args.cols * (has_bias(args) ? 2 : 1);
  return static_cast<std::uint64_t>(floats) * sizeof(float);
}

/// Null for an RMS norm, which has no such member.
template <typename Args, typename Member>
const void* of_layer_norm(const Args& args, Member member) {
  if constexpr (kIsLayerNorm<Args>)
    return member(args);
  return nullptr;
}

constexpr std::string_view kNoResidual = "adds_residual is false";
constexpr std::string_view kNoDweight = "has_dweight is false";
constexpr std::string_view kFromOutput = "from_output is true";
constexpr std::string_view kFromInput = "from_output is false";

template <typename Args>
Elements weights_of(const Args& args) {
  return {args.cols, size_bytes(weight_dtype_of(args))};
}
template <typename Args>
Elements statistics_of(const Args& args) {
  return floats(args.cols == 0 ? 0 : args.rows);
}

template <typename Args>
Argument weight_of(const Args& args) {
  return reads("weight", args.weight, weights_of(args))
      .exists_if(args.has_weight, kNoWeight);
}
template <typename Args>
Argument weight_offset(const Args& args) {
  return value("weight_offset", weight_offset_of(args)).exists_if(args.has_weight);
}

template <typename Args>
auto forward_tensors(const Args& args) {
  const Elements all = elements_of(args);
  const Elements each_row = statistics_of(args);
  const auto* const mean = of_layer_norm(args, [](auto& norm) { return norm.mean; });
  const auto* const bias = of_layer_norm(args, [](auto& norm) { return norm.bias; });
  return std::array{
      writes("y", args.y, all),
      writes("sum", args.sum, all).exists_if(args.adds_residual, kNoResidual),
      writes("mean", mean, each_row).if_set().exists_if(kIsLayerNorm<Args>),
      writes("rstd", args.rstd, each_row).if_set(),
      reads("x", args.x, all),
      reads("residual", args.residual, all).exists_if(args.adds_residual, kNoResidual),
      weight_of(args),
      reads("bias", bias, weights_of(args)).exists_if(has_bias(args), kNoBias)};
}

template <typename Args>
auto backward_tensors(const Args& args) {
  const Elements all = elements_of(args);
  const bool from_output = args.from_output;
  const auto* const mean = of_layer_norm(args, [](auto& norm) { return norm.mean; });
  const auto* const bias = of_layer_norm(args, [](auto& norm) { return norm.bias; });
  return std::array{
      writes("grad_in", args.dx, all, "dx"),
      workspace("partials", args.workspace, args.workspace_bytes,
                sums_columns(args) && all.count > 0),
      reads("grad_out", args.dy, all, "dy"),
      reads("x", args.x, all).exists_if(!from_output, kFromOutput),
      reads("x", args.y, all, "y").exists_if(from_output, kFromInput),
      reads("grad_sum", args.dsum, all, "dsum")
          .exists_if(args.adds_residual, kNoResidual),
      weight_of(args),
      reads("bias", bias, weights_of(args))
          .exists_if(from_output && has_bias(args), from_output ? kNoBias : kFromInput),
      reads("mean", mean, statistics_of(args))
          .exists_if(kIsLayerNorm<Args> && !from_output, kFromOutput),
      reads("rstd", args.rstd, statistics_of(args))};
}

template <typename Args>
auto finalize_arguments_of(const Args& args, std::int64_t blocks) {
  const auto* const dbias = of_layer_norm(args, [](auto& norm) { return norm.dbias; });
  return std::array{
      writes("grad_weight", args.dweight, weights_of(args), "dweight")
          .used_if(sums_columns(args), args.has_weight ? kNoDweight : kNoWeight),
      writes("grad_bias", dbias, weights_of(args), "dbias")
          .exists_if(args.has_dweight && has_bias(args),
                     args.has_dweight ? kNoBias : kNoDweight),
      value("partials", args.workspace), value("blocks", blocks),
      value("cols", args.cols)};
}

template <typename Args>
Result<Launches> forward_plan(const Args& args, const Device& device,
                              std::string_view kernel, Pointers pointers) {
  const std::int64_t elements = KILN_TRY(check_norm(args));
  const auto tensors = forward_tensors(args);
  KILN_TRY(check_memory({tensors}, pointers));
  if (elements == 0)
    return Launches{};
  Launch launch = norm_launch(args, kernel, forward_blocks(device));
  if constexpr (!kIsLayerNorm<Args>) {
    // Rounding to float changes nothing, nor does rounding twice in a row.
    const bool rounds = args.casting == RmsNormCasting::kLlama &&
                        args.dtype != DType::kF32 && args.has_weight;
    launch.parameters["llama"] = rounds ? "true" : "false";
  }
  const std::array numbers{weight_offset(args), value("eps", args.eps),
                           value("rows", args.rows), value("cols", args.cols)};
  launch.arguments = Arguments{tensors, numbers};
  return just(std::move(launch));
}

template <typename Args>
Result<Launches> backward_plan(const Args& args, const Device& device,
                               const std::string& kernel, Pointers pointers) {
  const std::uint64_t needed = KILN_TRY(bytes_of_partials(args, device));
  KILN_TRY(check_workspace(args.workspace, args.workspace_bytes, needed));
  const std::int64_t blocks = partial_rows(args, device);
  const auto tensors = backward_tensors(args);
  const auto finalized = finalize_arguments_of(args, blocks);
  KILN_TRY(check_memory({tensors, finalized}, pointers));
  Launches plan;
  if (args.cols == 0)
    return plan;
  const std::int64_t chunk = chunk_of(device, args.cols, has_bias(args));
  Launch launch = norm_launch(args, kernel, blocks);
  launch.extents["chunk"] = chunk;
  launch.parameters["from_output"] = args.from_output ? "true" : "false";
  if (args.rows > 0) {
    const std::array numbers{weight_offset(args), value("rows", args.rows),
                             value("cols", args.cols), value("chunk", chunk)};
    plan.push_back(launch);
    plan.back().arguments = Arguments{tensors, numbers};
  }
  if (sums_columns(args)) {
    launch.entry = kernel + "_finalize";
    launch.arguments = Arguments{finalized};
    plan.push_back(std::move(launch));
  }
  return plan;
}

}  // namespace

Result<Launches> make_plan(const LayerNormForward& args, const Device& device,
                           Pointers pointers) {
  return forward_plan(args, device, "layernorm_fwd", pointers);
}
Result<Launches> make_plan(const RmsNormForward& args, const Device& device,
                           Pointers pointers) {
  return forward_plan(args, device, "rmsnorm_fwd", pointers);
}
Result<Launches> make_plan(const LayerNormBackward& args, const Device& device,
                           Pointers pointers) {
  return backward_plan(args, device, "layernorm_bwd", pointers);
}
Result<Launches> make_plan(const RmsNormBackward& args, const Device& device,
                           Pointers pointers) {
  return backward_plan(args, device, "rmsnorm_bwd", pointers);
}

Result<std::uint64_t> workspace_bytes(const Device& device,
                                      const LayerNormBackward& args) {
  return bytes_of_partials(args, device);
}
Result<std::uint64_t> workspace_bytes(const Device& device,
                                      const RmsNormBackward& args) {
  return bytes_of_partials(args, device);
}

}  // namespace kiln::ops
