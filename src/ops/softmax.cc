// Softmax: what it checks and launches. kiln/ops/softmax.h says what it computes.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "ops/check.h"
#include "ops/plans.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::ops {
namespace {

std::string_view kernel_of(SoftmaxMask mask) {
  return word_of(
      mask,
      {"scaled_softmax", "scaled_masked_softmax", "scaled_upper_triang_masked_softmax"},
      "");
}

// The class of row lengths, the same for every architecture: a warp, or part of one,
// keeps rows of up to 4096 columns in registers; each longer row gets a block.
std::string softmax_max_cols(std::int64_t cols) {
  constexpr std::array<std::int64_t, 8> kClasses{32,  64,   128,  256,
                                                 512, 1024, 2048, 4096};
  const auto* const longest = std::ranges::lower_bound(kClasses, cols);
  return longest == kClasses.end() ? "any" : std::to_string(*longest);
}

std::int64_t mask_batch_of(const SoftmaxForward& args) {
  return args.mask_batch == 0 ? args.batch : args.mask_batch;
}

template <typename Args>
Result<std::int64_t> check_softmax(const Args& args) {
  KILN_TRY(check_dtype(args.dtype));
  if (kernel_of(args.mask).empty())
    return refuse("mask is none of SoftmaxMask");
  if (!std::isfinite(args.scale))
    return refuse("scale is {}: it must be finite", args.scale);
  const std::int64_t elements = KILN_TRY(element_count({{"batch", args.batch},
                                                        {"heads", args.heads},
                                                        {"sq", args.sq},
                                                        {"skv", args.skv}}));
  if constexpr (requires { args.mask_batch; }) {
    const std::int64_t mask_batch = mask_batch_of(args);
    if (args.mask == SoftmaxMask::kBytes && mask_batch != 1 && mask_batch != args.batch)
      return refuse("mask_batch is {}: 1 or batch, {}", args.mask_batch, args.batch);
    if (args.masked_row > SoftmaxMaskedRow::kUniform)
      return refuse("masked_row is none of SoftmaxMaskedRow");
    if (args.masked_row == SoftmaxMaskedRow::kUniform &&
        args.mask != SoftmaxMask::kBytes)
      return refuse("masked_row is kUniform, and mask is not kBytes");
  }
  return elements;
}

template <typename Args>
std::int64_t rows_of(const Args& args) {
  return args.batch * args.heads * args.sq;
}

template <typename Args>
Elements softmax_elements(const Args& args) {
  return {rows_of(args) * args.skv, size_bytes(args.dtype)};
}

auto arguments_of(const SoftmaxForward& args) {
  const std::int64_t rows = rows_of(args);
  const std::int64_t a_mask = args.sq * args.skv;
  const std::int64_t masks = rows > 0 ? mask_batch_of(args) : 0;
  const bool has_mask = args.mask == SoftmaxMask::kBytes;
  return std::array{
      writes("out", args.y, softmax_elements(args), "y"),
      reads("in", args.x, softmax_elements(args), "x"),
      reads("mask", args.mask_bytes, {masks * a_mask, 1}, "mask_bytes")
          .exists_if(has_mask, "mask is not kBytes"),
      value("scale", args.scale),
      value("rows", rows),
      value("heads", args.heads).exists_if(has_mask),
      value("sq", args.sq).exists_if(args.mask != SoftmaxMask::kNone),
      value("cols", args.skv),
      value("mask_batch_stride", masks == 1 ? 0 : a_mask).exists_if(has_mask)};
}

auto arguments_of(const SoftmaxBackward& args) {
  const Elements all = softmax_elements(args);
  return std::array{writes("grad_in", args.dx, all, "dx"),
                    reads("grad_out", args.dy, all, "dy"),
                    reads("y", args.y, all),
                    value("scale", args.scale),
                    value("rows", rows_of(args)),
                    value("sq", args.sq).exists_if(args.mask == SoftmaxMask::kCausal),
                    value("cols", args.skv)};
}

template <typename Args>
Result<Launches> softmax_plan(const Args& args, std::string_view pass,
                              Pointers pointers) {
  const std::int64_t elements = KILN_TRY(check_softmax(args));
  const auto arguments = arguments_of(args);
  KILN_TRY(check_memory({arguments}, pointers));
  if (elements == 0)
    return Launches{};
  Parameters parameters{{"dtype", std::string(to_string(args.dtype))},
                        {"max_cols", softmax_max_cols(args.skv)}};
  if constexpr (requires { args.masked_row; }) {
    if (args.masked_row == SoftmaxMaskedRow::kUniform)
      parameters["masked_row"] = "uniform";
  }
  return just({.kernel = fmt::format("{}_{}", kernel_of(args.mask), pass),
               .parameters = std::move(parameters),
               .extents = {{"rows", rows_of(args)}, {"cols", args.skv}},
               .arguments = Arguments{arguments}});
}

}  // namespace

Result<Launches> make_plan(const SoftmaxForward& args, const Device& /*device*/,
                           Pointers pointers) {
  return softmax_plan(args, "fwd", pointers);
}
Result<Launches> make_plan(const SoftmaxBackward& args, const Device& /*device*/,
                           Pointers pointers) {
  return softmax_plan(args, "bwd", pointers);
}

}  // namespace kiln::ops
