#include "attention/kernel_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "util/try.h"
#include "util/words.h"

namespace kiln::attention {
namespace {

constexpr ComputeCapability kFirst{7, 0};
constexpr ComputeCapability kFirstTensorCores{7, 5};
constexpr ComputeCapability kFirstAmpere{8, 0};
constexpr std::int64_t kLargestDim = 256;
constexpr std::int64_t kVector = 8;  // 16-bit elements in 16 bytes
constexpr std::int64_t kMostRows = std::int64_t{1} << 29;  // 3 sizes fit in an int

/// The smallest of `dims` that is not below `dim`.
template <std::size_t kSize>
std::int64_t rounded_up(std::int64_t dim, const std::array<std::int64_t, kSize>& dims) {
  return *std::ranges::lower_bound(dims, dim);
}

std::string_view bias_of(Bias bias) {
  return word_of(bias, {"none", "additive", "alibi", "boolean"});
}

Result<void> check_supported(const Problem& problem, ComputeCapability capability) {
  if (capability < kFirst)
    return fail(ErrorCode::kUnavailable,
                "Kiln's kernels are for compute capability {} and later; this is {}",
                to_string(kFirst), to_string(capability));
  if (std::max(problem.dqk, problem.dv) > kLargestDim)
    return fail(ErrorCode::kUnavailable,
                "Kiln's kernels are for head dimensions up to {}", kLargestDim);
  for (const Strides& strides : {problem.q, problem.k, problem.v, problem.o}) {
    if (strides.dim != 1)
      return fail(ErrorCode::kUnavailable,
                  "Kiln's kernels want the last dimension contiguous; its stride is {}",
                  strides.dim);
  }
  if (problem.sq > kMostRows || problem.skv > kMostRows)
    return fail(ErrorCode::kUnavailable, "Kiln's kernels are for sequences up to {}",
                kMostRows);
  constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
  constexpr std::int64_t kLeastRows = 8;  // per block, of the smallest kind
  const std::int64_t blocks =
      ((std::max(problem.sq, problem.skv) + kLeastRows - 1) / kLeastRows) * 2;
  if (problem.batch > kMostBlocks / blocks / problem.heads)
    return fail(ErrorCode::kUnavailable,
                "Kiln's kernels have a grid of up to 2^31 - 1 blocks, which this "
                "problem exceeds: split the batch");
  return {};
}

/// Why tensor cores cannot run the problem; empty: they can.
std::string no_tensor_cores(const Problem& problem, ComputeCapability capability,
                            const CallProperties& call) {
  if (problem.dtype == DType::kF32)
    return "f32 is computed in float";
  if (capability < kFirstTensorCores)
    return fmt::format("compute capability {} has none of these tensor cores",
                       to_string(capability));
  if (problem.dtype == DType::kBf16 && capability < kFirstAmpere)
    return fmt::format("compute capability {} has no tensor cores for bf16",
                       to_string(capability));
  if (problem.dqk % kVector != 0 || problem.dv % kVector != 0)
    return fmt::format("a head dimension ({}, {}) is no multiple of {}", problem.dqk,
                       problem.dv, kVector);
  // The stride of an axis of size 1 does not matter, nor does the batch stride of
  // packed sequences.
  const bool is_packed = problem.layout == Layout::kThd;
  const auto odd_stride = [&](const Strides& strides, std::int64_t heads,
                              std::int64_t rows) -> std::int64_t {
    for (const auto& [stride, places] :
         {std::pair{strides.batch, is_packed ? 1 : problem.batch},
          {strides.head, heads},
          {strides.group, problem.kv_heads},
          {strides.sequence, is_packed ? 2 : rows}}) {
      if (places > 1 && stride % kVector != 0)
        return stride;
    }
    return 0;
  };
  for (const std::int64_t stride :
       {odd_stride(problem.q, problem.heads, problem.sq),
        odd_stride(problem.k, problem.kv_heads, problem.skv),
        odd_stride(problem.v, problem.kv_heads, problem.skv),
        odd_stride(problem.o, problem.heads, problem.sq)}) {
    if (stride != 0)
      return fmt::format("a stride, {}, is no multiple of {}", stride, kVector);
  }
  if (!call.is_aligned)
    return "a tensor does not begin at a multiple of 16 bytes";
  if (!call.has_positive_scale)
    return "the scale is not above 0";
  return {};
}

/// Rows per block: `tile` rows are kept, `step` rows are loaded per iteration.
struct Tiles {
  std::int64_t tile;
  std::int64_t step;
};

/// As large as registers, then shared memory allow. template_spills_test requires that
/// the default set does not spill; templates/README.md says which other kernels do.
/// A row is added up `step` at a time: step does not depend on lengths or the batch, so
/// that its bits do not either.
Tiles tiles_of(const Problem& problem, std::int64_t dqk, std::int64_t dv,
               ComputeCapability capability) {
  // From 8.0 on every device has at least 99 KiB.
  const bool is_turing = capability < kFirstAmpere;
  const std::int64_t most_bytes = std::int64_t{is_turing ? 64 : 99} * 1024;
  const bool has_more = problem.bias_kind != Bias::kNone || problem.dropout > 0;
  if (problem.pass == Pass::kForward) {
    const bool may_have_two_rows = dqk <= 128 && !has_more && !is_turing;
    const bool has_two_rows = may_have_two_rows && problem.sq > 64;  // 2 x 16 a warp
    Tiles tiles{.tile = has_two_rows || dqk == 192 ? 128 : 64, .step = 64};
    if ((may_have_two_rows && dqk > 64) || (dqk > 192 && has_more))
      tiles.step = 32;
    const auto bytes = [&] { return 2 * (tiles.tile * dqk + tiles.step * (dqk + dv)); };
    while (bytes() > most_bytes) (tiles.tile > 64 ? tiles.tile : tiles.step) /= 2;
    return tiles;
  }
  Tiles tiles{.tile = 64, .step = dqk + dv <= 128 ? 64 : 32};
  if (problem.dropout > 0)
    tiles.step /= 2;
  else if (dqk + dv > 256 && has_more)
    tiles.step = 16;
  const auto bytes = [&] {
    return 2 * (tiles.tile + tiles.step) * (dqk + dv) + 8 * tiles.step;
  };
  while (bytes() > most_bytes) (tiles.step > 16 ? tiles.step : tiles.tile) /= 2;
  return tiles;
}

Parameters tensor_core_parameters(const Problem& problem,
                                  ComputeCapability capability) {
  constexpr std::array<std::int64_t, 6> kDims{32, 64, 96, 128, 192, 256};
  const std::int64_t dv = rounded_up(problem.dv, kDims);
  const std::int64_t dqk = std::max(rounded_up(problem.dqk, kDims), dv);
  const Tiles tiles = tiles_of(problem, dqk, dv, capability);
  return {{"dqk", std::to_string(dqk)},
          {"dv", std::to_string(dv)},
          {"tile", std::to_string(tiles.tile)},
          {"step", std::to_string(tiles.step)}};
}

Parameters plain_parameters(const Problem& problem) {
  constexpr std::array<std::int64_t, 3> kDims{64, 128, 256};
  return {{"max_dim",
           std::to_string(rounded_up(std::max(problem.dqk, problem.dv), kDims))}};
}

}  // namespace

Result<KernelChoice> choose_kernel(const Problem& problem, ComputeCapability capability,
                                   const CallProperties& call) {
  KILN_TRY(check_supported(problem, capability));
  std::string why_not = no_tensor_cores(problem, capability, call);
  const bool has_tensor_cores = why_not.empty();
  KernelChoice choice{
      .kernel = fmt::format("attention_{}{}", has_tensor_cores ? "" : "plain_",
                            problem.pass == Pass::kForward ? "fwd" : "bwd"),
      .parameters = has_tensor_cores ? tensor_core_parameters(problem, capability)
                                     : plain_parameters(problem),
      .reason = has_tensor_cores ? "tensor cores" : std::move(why_not)};
  choice.parameters["dtype"] = std::string(word_of(problem.dtype));
  choice.parameters["bias"] = std::string(bias_of(problem.bias_kind));
  choice.parameters["dropout"] = problem.dropout > 0 ? "true" : "false";
  return choice;
}

Result<KernelChoice> choose_bias_kernel(const Problem& problem,
                                        ComputeCapability capability) {
  KILN_TRY(check_supported(problem, capability));
  Parameters parameters = plain_parameters(problem);
  parameters["dtype"] = std::string(word_of(problem.dtype));
  parameters["dropout"] = problem.dropout > 0 ? "true" : "false";
  return KernelChoice{.kernel = "attention_bias_bwd",
                      .parameters = std::move(parameters),
                      .reason = "sums are made in float"};
}

OwnKernel own_kernel(const Problem& problem, ComputeCapability capability,
                     const CallProperties& call) {
  auto choice = choose_kernel(problem, capability, call);
  if (!choice)
    return {false, std::move(choice).error().message};
  if (!choice->kernel.starts_with("attention_plain_"))
    return {true, fmt::format("{} on {}", choice->kernel, choice->reason)};
  return {true, fmt::format("{} in float, as {}", choice->kernel, choice->reason)};
}

}  // namespace kiln::attention
