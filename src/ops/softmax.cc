#include "ops/softmax.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

constexpr std::string_view kSoftmaxForward = "softmax_forward";
constexpr std::string_view kSoftmaxBackward = "softmax_backward";

std::string_view kernel_of(SoftmaxMask mask) {
  switch (mask) {
    case SoftmaxMask::kNone:
      return "scaled_softmax";
    case SoftmaxMask::kBytes:
      return "scaled_masked_softmax";
    case SoftmaxMask::kCausal:
      return "scaled_upper_triang_masked_softmax";
  }
  return {};
}

// The choice, the same for every architecture: the shortest rows that a warp, or a part
// of one, keeps in its registers; beyond, a block a row.
std::string softmax_max_cols(std::int64_t cols) {
  constexpr std::array<std::int64_t, 8> kClasses{32,  64,   128,  256,
                                                 512, 1024, 2048, 4096};
  for (const std::int64_t longest : kClasses) {
    if (cols <= longest)
      return std::to_string(longest);
  }
  return "any";
}

template <typename Args>
Result<std::int64_t> check_softmax(std::string_view operation, const Args& args) {
  KILN_TRY(check_dtype(operation, args.dtype));
  if (kernel_of(args.mask).empty())
    return refuse(operation, "mask is none of SoftmaxMask");
  return element_count(operation, {{"batch", args.batch},
                                   {"heads", args.heads},
                                   {"sq", args.sq},
                                   {"skv", args.skv}});
}

template <typename Args>
Launch softmax_launch(const Args& args, std::string_view pass, std::int64_t rows) {
  return {.kernel = fmt::format("{}_{}", kernel_of(args.mask), pass),
          .parameters = {{"dtype", std::string(to_string(args.dtype))},
                         {"max_cols", softmax_max_cols(args.skv)}},
          .extents = {{"rows", rows}, {"cols", args.skv}},
          .arguments = {}};
}

std::int64_t mask_batch_of(const SoftmaxForward& args) {
  return args.mask_batch == 0 ? args.batch : args.mask_batch;
}

template <typename Args>
std::uint64_t softmax_bytes(const Args& args) {
  return static_cast<std::uint64_t>(args.batch * args.heads * args.sq * args.skv) *
         size_bytes(args.dtype);
}

}  // namespace

Result<Plan> plan(const SoftmaxForward& args, const Device& /*device*/) {
  const std::int64_t elements = KILN_TRY(check_softmax(kSoftmaxForward, args));
  const std::int64_t mask_batch = mask_batch_of(args);
  if (args.mask == SoftmaxMask::kBytes && mask_batch != 1 && mask_batch != args.batch)
    return refuse(kSoftmaxForward, fmt::format("mask_batch is {}: 1 or batch, {}",
                                               args.mask_batch, args.batch));
  if (elements == 0)
    return Plan{};
  const long long rows = args.batch * args.heads * args.sq;
  const long long heads = args.heads;
  const long long sq = args.sq;
  const long long cols = args.skv;
  Launch launch = softmax_launch(args, "fwd", rows);
  switch (args.mask) {
    case SoftmaxMask::kNone:
      launch.arguments = Arguments(args.y, args.x, args.scale, rows, cols);
      break;
    case SoftmaxMask::kBytes: {
      const long long mask_batch_stride = mask_batch == 1 ? 0 : sq * cols;
      launch.arguments = Arguments(args.y, args.x, args.mask_bytes, args.scale, rows,
                                   heads, sq, cols, mask_batch_stride);
      break;
    }
    case SoftmaxMask::kCausal:
      launch.arguments = Arguments(args.y, args.x, args.scale, rows, sq, cols);
      break;
  }
  return Plan{std::move(launch)};
}

Result<Plan> plan(const SoftmaxBackward& args, const Device& /*device*/) {
  if (KILN_TRY(check_softmax(kSoftmaxBackward, args)) == 0)
    return Plan{};
  const long long rows = args.batch * args.heads * args.sq;
  const long long sq = args.sq;
  const long long cols = args.skv;
  Launch launch = softmax_launch(args, "bwd", rows);
  launch.arguments =
      args.mask == SoftmaxMask::kCausal
          ? Arguments(args.dx, args.dy, args.y, args.scale, rows, sq, cols)
          : Arguments(args.dx, args.dy, args.y, args.scale, rows, cols);
  return Plan{std::move(launch)};
}

Result<void> check_pointers(const SoftmaxForward& args) {
  const std::uint64_t bytes = softmax_bytes(args);
  const std::size_t element = size_bytes(args.dtype);
  const bool has_mask = args.mask == SoftmaxMask::kBytes;
  const std::int64_t mask_bytes =
      has_mask && bytes > 0 ? mask_batch_of(args) * args.sq * args.skv : 0;
  const Memory mask = only_if(
      has_mask, "mask is not kBytes",
      {"mask_bytes", args.mask_bytes, static_cast<std::uint64_t>(mask_bytes), 1});
  return check_memory(kSoftmaxForward, {{"y", args.y, bytes, element}},
                      {{"x", args.x, bytes, element}, mask});
}

Result<void> check_pointers(const SoftmaxBackward& args) {
  const std::uint64_t bytes = softmax_bytes(args);
  const std::size_t element = size_bytes(args.dtype);
  return check_memory(kSoftmaxBackward, {{"dx", args.dx, bytes, element}},
                      {{"dy", args.dy, bytes, element}, {"y", args.y, bytes, element}});
}

}  // namespace kiln::ops
