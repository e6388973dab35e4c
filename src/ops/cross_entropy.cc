#include "ops/cross_entropy.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "ops/check.h"
#include "util/try.h"

namespace kiln::ops {
namespace {

template <typename Args>
constexpr std::string_view kName = "cross_entropy";
template <>
constexpr std::string_view kName<CrossEntropyForward> = "cross_entropy_forward";
template <>
constexpr std::string_view kName<CrossEntropyBackward> = "cross_entropy_backward";

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

template <typename Args>
std::int64_t dlogits_stride(const Args& args) {
  return args.dlogits_stride == 0 ? padded_vocabulary(args) : args.dlogits_stride;
}

/// That rows which are `stride` apart and `cols` long do not run into each other, and
/// can be counted.
template <typename Args>
Result<void> check_rows(const Args& args, std::string_view name, std::int64_t stride,
                        std::int64_t cols) {
  if (stride < cols)
    return refuse(kName<Args>,
                  fmt::format("{} is {}, less than a row's {}", name, stride, cols));
  KILN_TRY(element_count(kName<Args>, {{"rows", args.rows}, {name, stride}}));
  return {};
}

template <typename Args>
Result<void> check(const Args& args) {
  KILN_TRY(check_dtype(kName<Args>, args.dtype));
  if (args.target_type != TargetType::kInt64 && args.target_type != TargetType::kInt32)
    return refuse(kName<Args>, "target_type is none of TargetType");
  KILN_TRY(element_count(kName<Args>,
                         {{"rows", args.rows}, {"vocabulary", args.vocabulary}}));
  if (args.vocabulary == 0)
    return refuse(kName<Args>, "vocabulary is 0: 1 at least");
  if (!(args.smoothing >= 0 && args.smoothing <= 1))  // nor NaN
    return refuse(kName<Args>, fmt::format("smoothing is {}: 0 to 1", args.smoothing));
  if (padded_vocabulary(args) < args.vocabulary)
    return refuse(kName<Args>,
                  fmt::format("padded_vocabulary is {}, less than the vocabulary, {}",
                              args.padded_vocabulary, args.vocabulary));
  KILN_TRY(check_rows(args, "logits_stride", logits_stride(args), args.vocabulary));
  if constexpr (kHasGradient<Args>) {
    KILN_TRY(check_rows(args, "dlogits_stride", dlogits_stride(args),
                        padded_vocabulary(args)));
  }
  return {};
}

/// What all kernels take last: the target distribution, targets and rows.
template <typename Args>
void add_rows(Arguments& to, const Args& args) {
  const double smoothing = args.smoothing;
  to.add(static_cast<float>(1 - smoothing));
  to.add(static_cast<float>(smoothing / static_cast<double>(args.vocabulary)));
  to.add(static_cast<long long>(args.ignored_index));
  to.add(args.target_type == TargetType::kInt64 ? 8LL : 4LL);
  to.add(static_cast<long long>(args.rows));
  to.add(static_cast<long long>(args.vocabulary));
  to.add(static_cast<long long>(logits_stride(args)));
  if constexpr (kHasGradient<Args>) {
    to.add(static_cast<long long>(padded_vocabulary(args)));
    to.add(static_cast<long long>(dlogits_stride(args)));
  }
}

// The choice, the same for every architecture: there is one kernel of a type, and its
// geometry suits the vocabulary.
template <typename Args>
Result<Plan> plan_of(const Args& args, Arguments arguments) {
  KILN_TRY(check(args));
  if (args.rows == 0)
    return Plan{};
  add_rows(arguments, args);
  constexpr bool kBackward = std::is_same_v<Args, CrossEntropyBackward>;
  Launch launch{.kernel = kBackward ? "cross_entropy_bwd" : "cross_entropy_fwd",
                .parameters = {{"dtype", std::string(to_string(args.dtype))}},
                .extents = {{"rows", args.rows}, {"cols", args.vocabulary}},
                .arguments = std::move(arguments)};
  if (!kBackward)
    launch.parameters.emplace("gradient", kHasGradient<Args> ? "true" : "false");
  return Plan{std::move(launch)};
}

/// From the first element to the last, what lies between rows included.
template <typename Args>
std::uint64_t matrix_bytes(const Args& args, std::int64_t stride, std::int64_t cols) {
  const std::int64_t elements = args.rows == 0 ? 0 : (args.rows - 1) * stride + cols;
  return static_cast<std::uint64_t>(elements) * size_bytes(args.dtype);
}

template <typename Args>
Memory logits_of(const Args& args) {
  return {"logits", args.logits,
          matrix_bytes(args, logits_stride(args), args.vocabulary),
          size_bytes(args.dtype)};
}

template <typename Args>
Memory dlogits_of(const Args& args) {
  return {"dlogits", args.dlogits,
          matrix_bytes(args, dlogits_stride(args), padded_vocabulary(args)),
          size_bytes(args.dtype)};
}

std::size_t size_bytes(TargetType type) {
  return type == TargetType::kInt64 ? 8 : 4;
}

template <typename Args>
Memory targets_of(const Args& args) {
  const std::size_t element = size_bytes(args.target_type);
  return {"targets", args.targets, static_cast<std::uint64_t>(args.rows) * element,
          element};
}

/// `each` floats a row.
Memory floats(std::string_view name, const float* begin, std::int64_t rows,
              std::uint64_t each = 1) {
  return {name, begin, static_cast<std::uint64_t>(rows) * each * sizeof(float),
          sizeof(float)};
}

/// The same, or nothing where it is null.
Memory optional_floats(std::string_view name, const float* begin, std::int64_t rows,
                       std::uint64_t each = 1) {
  return floats(name, begin, begin == nullptr ? 0 : rows, each);
}

}  // namespace

Result<Plan> plan(const CrossEntropy& args, const Device& /*device*/) {
  return plan_of(args, Arguments(args.loss, args.lse, args.dlogits, args.logits,
                                 args.targets, args.row_scale, args.scale));
}

Result<Plan> plan(const CrossEntropyForward& args, const Device& /*device*/) {
  return plan_of(args,
                 Arguments(args.loss, args.lse, args.saved, args.logits, args.targets));
}

Result<Plan> plan(const CrossEntropyBackward& args, const Device& /*device*/) {
  return plan_of(args, Arguments(args.dlogits, args.logits, args.targets, args.saved,
                                 args.row_scale, args.scale));
}

Result<void> check_pointers(const CrossEntropy& args) {
  return check_memory(kName<CrossEntropy>,
                      {floats("loss", args.loss, args.rows),
                       optional_floats("lse", args.lse, args.rows), dlogits_of(args)},
                      {logits_of(args), targets_of(args),
                       optional_floats("row_scale", args.row_scale, args.rows)});
}

Result<void> check_pointers(const CrossEntropyForward& args) {
  return check_memory(kName<CrossEntropyForward>,
                      {floats("loss", args.loss, args.rows),
                       optional_floats("lse", args.lse, args.rows),
                       optional_floats("saved", args.saved, args.rows, 2)},
                      {logits_of(args), targets_of(args)});
}

Result<void> check_pointers(const CrossEntropyBackward& args) {
  return check_memory(
      kName<CrossEntropyBackward>, {dlogits_of(args)},
      {logits_of(args), targets_of(args), floats("saved", args.saved, args.rows, 2),
       optional_floats("row_scale", args.row_scale, args.rows)});
}

}  // namespace kiln::ops
