// The fields that rules can compare, and those that a remedy can change.

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "attention/condition.h"
#include "attention/problem_table.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

double number(std::int64_t value) {
  return static_cast<double>(value);
}

template <auto kMember, typename Value>
FieldValue read(const RuleQuestion& question) {
  const Value& value = question.problem.*kMember;
  if constexpr (std::is_same_v<Value, Bias>)  // cuDNN is given it as one that is added
    return word_of(value == Bias::kBoolean ? Bias::kPostScale : value);
  else if constexpr (std::is_enum_v<Value>)
    return word_of(value);
  else
    return static_cast<double>(value);
}

template <auto kMember, typename Value>
Result<void> write(Problem& problem, const FieldValue& value) {
  if constexpr (std::is_enum_v<Value>)
    problem.*kMember = KILN_TRY(parse_word<Value>(std::get<std::string_view>(value)));
  else if constexpr (std::is_same_v<Value, bool>)
    problem.*kMember = std::get<double>(value) != 0;
  else
    problem.*kMember = static_cast<Value>(std::get<double>(value));
  return {};
}

/// No remedy can change the pass.
template <typename Value, auto kMember>
Field own_field(const ProblemField<kMember>& field) {
  Field made{.name = field.name, .read = read<kMember, Value>};
  if constexpr (std::is_enum_v<Value>) {
    made.kind = FieldKind::kWord;
    made.words = words_of<Value>();
  } else if constexpr (std::is_same_v<Value, bool>) {
    made.kind = FieldKind::kFlag;
  }
  if constexpr (!std::is_same_v<Value, Pass>)
    made.write = write<kMember, Value>;
  return made;
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

using Q = const RuleQuestion&;

/// `read` gives a number or a flag.
template <typename Read>
Field derived(std::string_view name, FieldKind kind, Read /*read*/) {
  return {.name = name, .kind = kind, .read = [](Q question) -> FieldValue {
            return static_cast<double>(Read()(question));
          }};
}

/// Derived fields, and the device and cuDNN version of the question.
std::vector<Field> derived_fields() {
  using enum FieldKind;
  return {
      derived("cudnn", kVersion, [](Q q) { return encoded(q.cudnn); }),
      derived("arch", kArch, [](Q q) { return q.arch.major * 100 + q.arch.minor; }),
      derived("max_d", kNumber,
              [](Q q) { return std::max(q.problem.dqk, q.problem.dv); }),
      derived("window_right", kNumber, [](Q q) { return right_bound(q.problem); }),
      derived("window", kFlag, [](Q q) { return has_window(q.problem); }),
      derived("elements", kNumber, [](Q q) { return largest_tensor(q.problem); }),
      derived("unit_strides", kFlag, [](Q q) { return has_unit_strides(q.problem); }),
      derived("mixed_layouts", kFlag, [](Q q) { return has_mixed_layouts(q.problem); }),
      derived("group_strides", kFlag,
              [](Q q) {
                return group_gap(q.problem, q.problem.q) != 0 ||
                       group_gap(q.problem, q.problem.o) != 0;
              }),
      derived("interleaved", kFlag, [](Q q) { return is_interleaved(q.problem); }),
  };
}

}  // namespace

std::span<const Field> fields() {
  // Never destroyed: conditions point into it.
  static const auto& all = *new const std::vector<Field>([] {
    std::vector<Field> joined = derived_fields();
    for_each_problem_field([&](const auto& field) {
      using Value = std::remove_cvref_t<decltype(field.of(Problem()))>;
      // Of strides and of a window's right side there are derived fields.
      if constexpr (!std::is_same_v<Value, Strides>)
        if (field.name != "window_right")
          joined.push_back(own_field<Value>(field));
    });
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
  return refuse("unknown field '{}'{}", name, did_you_mean(name, names));
}

}  // namespace kiln::attention
