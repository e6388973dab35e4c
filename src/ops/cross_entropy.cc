// Cross-entropy: what it checks and launches. kiln/ops/cross_entropy.h says what it
// computes.

#include <array>
#include <string>
#include <string_view>
#include <type_traits>

#include "ops/check.h"
#include "ops/plans.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

template <typename Args>
constexpr bool kHasGradient = !std::is_same_v<Args, CrossEntropyForward>;

template <typename Args>
std::int64_t padded_vocabulary(const Args& args) {
  return args.padded_vocabulary == 0 ? args.vocabulary : args.padded_vocabulary;
}

template <typename Args>
std::int64_t logits_stride(const Args& args) {
  return args.logits_stride == 0 ? padded_vocabulary(args) : args.logits_stride;
}

/// 0 if the operation has no gradient.
template <typename Args>
std::int64_t dlogits_stride(const Args& args) {
  if constexpr (kHasGradient<Args>)
    return args.dlogits_stride == 0 ? padded_vocabulary(args) : args.dlogits_stride;
  return 0;
}

/// Checks that rows of `cols` elements, `stride` apart, do not overlap, and that their
/// number of elements is below 2^60.
template <typename Args>
Result<void> check_rows(const Args& args, std::string_view name, std::int64_t stride,
                        std::int64_t cols) {
  if (stride < cols)
    return refuse("{} is {}, less than a row's {}", name, stride, cols);
  KILN_TRY(element_count({{"rows", args.rows}, {name, stride}}));
  return {};
}

template <typename Args>
Result<void> check_call(const Args& args) {
  KILN_TRY(check_dtype(args.dtype));
  if (args.target_type != TargetType::kInt64 && args.target_type != TargetType::kInt32)
    return refuse("target_type is none of TargetType");
  KILN_TRY(element_count({{"rows", args.rows}, {"vocabulary", args.vocabulary}}));
  if (args.vocabulary == 0)
    return refuse("vocabulary is 0: 1 at least");
  if (!(args.smoothing >= 0 && args.smoothing <= 1))  // also refuses NaN
    return refuse("smoothing is {}: 0 to 1", args.smoothing);
  if (padded_vocabulary(args) < args.vocabulary)
    return refuse("padded_vocabulary is {}, less than the vocabulary, {}",
                  args.padded_vocabulary, args.vocabulary);
  KILN_TRY(check_rows(args, "logits_stride", logits_stride(args), args.vocabulary));
  if constexpr (kHasGradient<Args>) {
    KILN_TRY(check_rows(args, "dlogits_stride", dlogits_stride(args),
                        padded_vocabulary(args)));
  }
  return {};
}

/// From the first element to the last, including gaps between rows.
template <typename Args>
Elements matrix_of(const Args& args, std::int64_t stride, std::int64_t cols) {
  return {args.rows == 0 ? 0 : (args.rows - 1) * stride + cols, size_bytes(args.dtype)};
}

std::size_t size_bytes(TargetType type) {
  return type == TargetType::kInt64 ? 8 : 4;
}

template <typename Args>
Argument logits_of(const Args& args) {
  return reads("logits", args.logits,
               matrix_of(args, logits_stride(args), args.vocabulary));
}

template <typename Args>
Argument dlogits_of(const Args& args) {
  return writes("dlogits", args.dlogits,
                matrix_of(args, dlogits_stride(args), padded_vocabulary(args)));
}

template <typename Args>
Argument targets_of(const Args& args) {
  return reads("targets", args.targets, {args.rows, size_bytes(args.target_type)});
}

auto arguments_of(const CrossEntropy& args) {
  const Elements each_row = floats(args.rows);
  return std::array{writes("loss", args.loss, each_row),
                    writes("lse", args.lse, each_row).if_set(),
                    dlogits_of(args),
                    logits_of(args),
                    targets_of(args),
                    reads("row_scale", args.row_scale, each_row).if_set(),
                    value("scale", args.scale)};
}

auto arguments_of(const CrossEntropyForward& args) {
  return std::array{writes("loss", args.loss, floats(args.rows)),
                    writes("lse", args.lse, floats(args.rows)).if_set(),
                    writes("saved", args.saved, floats(2 * args.rows)).if_set(),
                    logits_of(args), targets_of(args)};
}

auto arguments_of(const CrossEntropyBackward& args) {
  return std::array{dlogits_of(args),
                    logits_of(args),
                    targets_of(args),
                    reads("saved", args.saved, floats(2 * args.rows)),
                    reads("row_scale", args.row_scale, floats(args.rows)).if_set(),
                    value("scale", args.scale)};
}

/// The last arguments of all kernels: the target distribution, targets and rows.
template <typename Args>
auto sizes_of(const Args& args) {
  const double smoothing = args.smoothing;
  const double uniform = smoothing / static_cast<double>(args.vocabulary);
  return std::array{
      value("confidence", static_cast<float>(1 - smoothing)),
      value("uniform", static_cast<float>(uniform)),
      value("ignored", args.ignored_index),
      value("target_bytes", static_cast<std::int64_t>(size_bytes(args.target_type))),
      value("rows", args.rows),
      value("cols", args.vocabulary),
      value("x_stride", logits_stride(args)),
      value("dx_cols", padded_vocabulary(args)).exists_if(kHasGradient<Args>),
      value("dx_stride", dlogits_stride(args)).exists_if(kHasGradient<Args>)};
}

// Every architecture uses the same kernel: one per data type, whose geometry suits the
// vocabulary.
template <typename Args>
Result<Launches> plan_of(const Args& args, Pointers pointers) {
  KILN_TRY(check_call(args));
  const auto arguments = arguments_of(args);
  KILN_TRY(check_memory({arguments}, pointers));
  if (args.rows == 0)
    return Launches{};
  constexpr bool kBackward = std::is_same_v<Args, CrossEntropyBackward>;
  Launch launch{.kernel = kBackward ? "cross_entropy_bwd" : "cross_entropy_fwd",
                .parameters = {{"dtype", std::string(to_string(args.dtype))}},
                .extents = {{"rows", args.rows}, {"cols", args.vocabulary}},
                .arguments = Arguments{arguments, sizes_of(args)}};
  if (!kBackward)
    launch.parameters.emplace("gradient", kHasGradient<Args> ? "true" : "false");
  return just(std::move(launch));
}

}  // namespace

Result<Launches> make_plan(const CrossEntropy& args, const Device& /*device*/,
                           Pointers pointers) {
  return plan_of(args, pointers);
}
Result<Launches> make_plan(const CrossEntropyForward& args, const Device& /*device*/,
                           Pointers pointers) {
  return plan_of(args, pointers);
}
Result<Launches> make_plan(const CrossEntropyBackward& args, const Device& /*device*/,
                           Pointers pointers) {
  return plan_of(args, pointers);
}

}  // namespace kiln::ops
