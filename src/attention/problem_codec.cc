#include "attention/problem_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/problem_table.h"
#include "codec/field_decoder.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::string_view kProblemSubject = "attention problem";

std::string text_of(const Strides& strides) {
  const auto& [batch, head, sequence, dim, group] = strides;
  std::string text = fmt::format("{},{},{},{}", batch, head, sequence, dim);
  if (group != 0)
    text += fmt::format(",{}", group);
  return text;
}

template <typename Value>
std::string text_of(Value value) {
  if constexpr (std::is_enum_v<Value>)
    return std::string(word_of(value));
  else if constexpr (std::is_same_v<Value, bool>)
    return value ? "1" : "0";
  else
    return fmt::format("{}", value);  // reads back exactly
}

Strides read_strides(FieldDecoder& decoder, std::string_view label) {
  const std::string text = decoder.text(label);
  const bool has_groups = std::ranges::count(text, ',') == 4;
  Strides strides;
  auto& [batch, head, sequence, dim, group] = strides;
  bool is_right = true;
  std::string_view rest = text;
  for (std::int64_t* const value : {&batch, &head, &sequence, &dim, &group}) {
    if (value == &group && !has_groups)
      break;
    const auto number = number_of<std::int64_t>(next_part(rest, ","));
    is_right = is_right && number;
    *value = number.value_or(0);
  }
  if (!is_right || !rest.empty() ||
      (has_groups && group == 0))  // each value has one encoding
    decoder.note(fmt::format("field '{}' has neither four strides nor five", label));
  return strides;
}

double read_fraction(FieldDecoder& decoder, std::string_view label) {
  const auto value = number_of<double>(decoder.text(label));
  if (!value)
    decoder.note(fmt::format("field '{}' is no number", label));
  return value.value_or(0);
}

template <typename Value>
void read(FieldDecoder& decoder, std::string_view label, Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    const Result<Value> parsed = parse_word<Value>(decoder.text(label));
    if (!parsed)
      decoder.note(parsed.error().message);
    value = parsed.value_or(Value{});
  } else if constexpr (std::is_same_v<Value, Strides>) {
    value = read_strides(decoder, label);
  } else if constexpr (std::is_same_v<Value, double>) {
    value = read_fraction(decoder, label);
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = decoder.number<unsigned>(label) != 0;
  } else {
    value = decoder.number<Value>(label);
  }
}

/// A backward pass implies training and statistics.
bool is_implied(std::string_view name, const Problem& problem) {
  return problem.pass == Pass::kBackward && (name == "training" || name == "stats");
}

/// What is not as usual and can be said in words, as "bias" "post_scale"; a flag has no
/// value. Nothing says strides.
std::vector<std::pair<std::string, std::string>> options_of(const Problem& problem) {
  std::vector<std::pair<std::string, std::string>> options;
  const Problem usual;
  for_each_problem_field([&](const auto& field) {
    const auto& value = field.of(problem);
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (!std::is_same_v<Value, Strides> && !std::is_same_v<Value, Pass>)
      if (field.shown != Shown::kAlways && !is_of_window(field) &&
          value != field.of(usual))
        options.emplace_back(field.name,
                             std::is_same_v<Value, bool> ? "" : text_of(value));
  });
  if (problem.window_left != -1 || problem.window_right != -1)
    options.emplace_back(
        "window", fmt::format("{},{}", problem.window_left, problem.window_right));
  return options;
}

}  // namespace

std::string flag_of(std::string_view field) {
  std::string flag = "--" + std::string(field);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

Fields to_fields(const Problem& problem) {
  Fields fields;
  const Problem usual;
  for_each_problem_field([&](const auto& field) {
    if (field.shown != Shown::kLater || field.of(problem) != field.of(usual))
      fields.add(field.name, text_of(field.of(problem)));
  });
  return fields;
}

Result<Problem> problem_from(const Fields& fields) {
  FieldDecoder decoder(fields, kProblemSubject);
  Problem problem;
  for_each_problem_field([&](const auto& field) {
    if (field.shown == Shown::kLater && decoder.texts(field.name).empty())
      return;
    const auto usual = field.of(problem);
    read(decoder, field.name, field.of(problem));
    if (field.shown == Shown::kLater && field.of(problem) == usual)
      decoder.note(fmt::format("field '{}' has its default", field.name));
  });
  Problem read = KILN_TRY(decoder.finish(problem));
  KILN_TRY(validate(read));
  return read;
}

Fields shown_fields(const Problem& problem) {
  Problem usual{{.batch = problem.batch,
                 .heads = problem.heads,
                 .kv_heads = problem.kv_heads,
                 .sq = problem.sq,
                 .skv = problem.skv,
                 .dqk = problem.dqk,
                 .dv = problem.dv,
                 .layout = problem.layout},
                {}};
  set_strides(usual);
  Fields shown;
  for_each_problem_field([&](const auto& field) {
    const auto& value = field.of(problem);
    // The name includes the pass.
    if (field.name != "pass" && !is_implied(field.name, problem) &&
        (field.shown == Shown::kAlways || value != field.of(usual)))
      shown.add(field.name, text_of(value));
  });
  return shown;
}

std::string flags_of(const Problem& problem) {
  std::string flags = fmt::format("--pass {}", word_of(problem.pass));
  const auto add = [&flags](std::string_view name, std::string_view value) {
    flags += fmt::format(" {}{}{}", flag_of(name), value.empty() ? "" : " ", value);
  };
  for_each_problem_field([&](const auto& field) {
    if (field.shown == Shown::kAlways)
      add(field.name, text_of(field.of(problem)));
  });
  for (const auto& [name, value] : options_of(problem)) add(name, value);
  return flags;
}

std::string to_string(const Problem& problem) {
  std::string text =
      fmt::format("{} {} b{} h{}/{} sq{} skv{} d{}/{} {} {}", word_of(problem.pass),
                  word_of(problem.dtype), problem.batch, problem.heads,
                  problem.kv_heads, problem.sq, problem.skv, problem.dqk, problem.dv,
                  word_of(problem.mask), word_of(problem.layout));
  for (const auto& [name, value] : options_of(problem))
    if (!is_implied(name, problem))
      text += fmt::format(" {}{}{}", name, value.empty() ? "" : " ", value);
  return text;
}

}  // namespace kiln::attention
