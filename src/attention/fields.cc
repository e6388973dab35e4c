// The fields that rules can compare, and those that a remedy can change.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attention/condition.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

double number(std::int64_t value) {
  return static_cast<double>(value);
}

template <auto Member>
FieldValue read_size(const RuleQuestion& question) {
  return number(question.problem.*Member);
}
template <auto Member>
Result<void> write_size(Problem& problem, const FieldValue& value) {
  problem.*Member = static_cast<std::int64_t>(std::get<double>(value));
  return {};
}
template <auto Member>
constexpr Field size_field(std::string_view name) {
  return {name, FieldKind::kNumber, {}, read_size<Member>, write_size<Member>};
}

template <auto Member>
FieldValue read_flag(const RuleQuestion& question) {
  return question.problem.*Member ? 1.0 : 0.0;
}
template <auto Member>
Result<void> write_flag(Problem& problem, const FieldValue& value) {
  problem.*Member = std::get<double>(value) != 0;
  return {};
}
template <auto Member>
constexpr Field flag_field(std::string_view name) {
  return {name, FieldKind::kFlag, {}, read_flag<Member>, write_flag<Member>};
}

template <auto Member, auto Parse>
Result<void> write_word(Problem& problem, const FieldValue& value) {
  problem.*Member = KILN_TRY(Parse(std::get<std::string_view>(value)));
  return {};
}

/// The elements of the largest tensor: an offset into a packed tensor must reach that
/// far.
double largest_tensor(const Problem& problem) {
  const auto most_dim = number(std::max(problem.dqk, problem.dv));
  return number(problem.batch) * most_dim *
         std::max(number(problem.heads) * number(problem.sq),
                  number(problem.kv_heads) * number(problem.skv));
}

bool has_unit_strides(const Problem& problem) {
  return problem.q.dim == 1 && problem.k.dim == 1 && problem.v.dim == 1 &&
         problem.o.dim == 1;
}

double flag(bool value) {
  return value ? 1 : 0;
}

using P = Problem;
using Q = const RuleQuestion&;

std::vector<Field> word_fields() {
  return {
      {"pass", FieldKind::kWord, pass_words(),
       [](Q q) -> FieldValue { return to_string(q.problem.pass); }},
      {"dtype", FieldKind::kWord, dtype_words(),
       [](Q q) -> FieldValue { return dtype_word(q.problem.dtype); },
       write_word<&P::dtype, parse_dtype>},
      {"mask", FieldKind::kWord, mask_words(),
       [](Q q) -> FieldValue { return to_string(q.problem.mask); },
       write_word<&P::mask, parse_mask>},
      {"bias", FieldKind::kWord, bias_words(),
       [](Q q) -> FieldValue { return to_string(q.problem.bias_kind); },
       write_word<&P::bias_kind, parse_bias>},
      {"layout", FieldKind::kWord, layout_words(),
       [](Q q) -> FieldValue { return to_string(q.problem.layout); },
       write_word<&P::layout, parse_layout>},
  };
}

std::vector<Field> plain_fields() {
  return {
      size_field<&P::batch>("batch"),
      size_field<&P::heads>("heads"),
      size_field<&P::kv_heads>("kv_heads"),
      size_field<&P::sq>("sq"),
      size_field<&P::skv>("skv"),
      size_field<&P::dqk>("dqk"),
      size_field<&P::dv>("dv"),
      size_field<&P::window_left>("window_left"),
      flag_field<&P::bias_gradient>("bias_gradient"),
      flag_field<&P::training>("training"),
      flag_field<&P::deterministic>("deterministic"),
      flag_field<&P::stats>("stats"),
      flag_field<&P::capture>("capture"),
      {"dropout",
       FieldKind::kNumber,
       {},
       [](Q q) -> FieldValue { return q.problem.dropout; },
       [](P& problem, const FieldValue& value) -> Result<void> {
         problem.dropout = std::get<double>(value);
         return {};
       }},
  };
}

/// Derived fields, and the device and cuDNN version of the question.
std::vector<Field> other_fields() {
  return {
      {"cudnn",
       FieldKind::kVersion,
       {},
       [](Q q) -> FieldValue { return number(encoded(q.cudnn)); }},
      {"arch",
       FieldKind::kArch,
       {},
       [](Q q) -> FieldValue { return q.arch.major * 100.0 + q.arch.minor; }},
      {"max_d",
       FieldKind::kNumber,
       {},
       [](Q q) -> FieldValue { return number(std::max(q.problem.dqk, q.problem.dv)); }},
      {"window_right",
       FieldKind::kNumber,
       {},
       [](Q q) -> FieldValue { return number(right_bound(q.problem)); }},
      {"window",
       FieldKind::kFlag,
       {},
       [](Q q) -> FieldValue { return flag(has_window(q.problem)); }},
      {"elements",
       FieldKind::kNumber,
       {},
       [](Q q) -> FieldValue { return largest_tensor(q.problem); }},
      {"unit_strides",
       FieldKind::kFlag,
       {},
       [](Q q) -> FieldValue { return flag(has_unit_strides(q.problem)); }},
      {"mixed_layouts",
       FieldKind::kFlag,
       {},
       [](Q q) -> FieldValue { return flag(has_mixed_layouts(q.problem)); }},
      {"group_strides",
       FieldKind::kFlag,
       {},
       [](Q q) -> FieldValue {
         return flag(group_gap(q.problem, q.problem.q) != 0 ||
                     group_gap(q.problem, q.problem.o) != 0);
       }},
      {"interleaved",
       FieldKind::kFlag,
       {},
       [](Q q) -> FieldValue { return flag(is_interleaved(q.problem)); }},
  };
}

}  // namespace

std::span<const Field> fields() {
  // Each of these is a field here, or part of one.
  const Problem problem;
  [[maybe_unused]] const auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout,
                                q, k, v, o, mask, window_left, window_right, bias_kind,
                                dropout, bias] = problem.common();
  [[maybe_unused]] const auto& [pass, training, stats, bias_gradient, deterministic,
                                capture] = problem.of_pass();
  // Never destroyed: conditions point into it.
  static const auto& all = *new const std::vector<Field>([] {
    std::vector<Field> joined = other_fields();
    for (const auto& more : {word_fields(), plain_fields()})
      joined.insert(joined.end(), more.begin(), more.end());
    return joined;
  }());
  return all;
}

Result<const Field*> find_field(std::string_view name) {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    if (field.name == name)
      return &field;
    names.emplace_back(field.name);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown field '{}'{}", name, did_you_mean(name, names)));
}

}  // namespace kiln::attention
