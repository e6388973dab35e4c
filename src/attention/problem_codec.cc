#include "attention/problem_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "codec/field_decoder.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::string_view kProblemSubject = "attention problem";

struct Size {
  std::string_view label;
  std::int64_t Problem::*member;
};
constexpr Size kSizes[] = {
    {"batch", &Problem::batch},
    {"heads", &Problem::heads},
    {"kv_heads", &Problem::kv_heads},
    {"sq", &Problem::sq},
    {"skv", &Problem::skv},
    {"dqk", &Problem::dqk},
    {"dv", &Problem::dv},
    {"window_left", &Problem::window_left},
    {"window_right", &Problem::window_right},
};

struct Flag {
  std::string_view label;
  bool Problem::*member;
};
constexpr Flag kFlags[] = {
    {"training", &Problem::training},
    {"deterministic", &Problem::deterministic},
    {"stats", &Problem::stats},
    {"capture", &Problem::capture},
    {"bias_gradient", &Problem::bias_gradient},
};

struct Tensor {
  std::string_view label;
  Strides Problem::*member;
};
constexpr Tensor kTensors[] = {
    {"q_strides", &Problem::q},
    {"k_strides", &Problem::k},
    {"v_strides", &Problem::v},
    {"o_strides", &Problem::o},
};

Strides read_strides(FieldDecoder& decoder, std::string_view label) {
  const std::string text = decoder.text(label);
  Strides strides;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool is_right = true;
  const bool has_groups = std::ranges::count(text, ',') == 4;
  const std::int64_t* const last = has_groups ? &strides.group : &strides.dim;
  for (std::int64_t* const value : {&strides.batch, &strides.head, &strides.sequence,
                                    &strides.dim, &strides.group}) {
    const auto [next, error] = std::from_chars(at, end, *value);
    const bool is_last = value == last;
    is_right = is_right && error == std::errc{} &&
               (is_last ? next == end : next != end && *next == ',');
    at = is_last || next == end ? end : next + 1;
    if (is_last)
      break;
  }
  if (!is_right || (has_groups && strides.group == 0))  // each value has one encoding
    decoder.note(fmt::format("field '{}' has neither four strides nor five", label));
  return strides;
}

/// "bias_gradient" is --bias-gradient.
std::string flag_of(std::string_view label) {
  std::string flag(label);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

/// Reads an enumerator from its word with `parse`.
template <typename Enum, typename Parse>
Enum read_word(FieldDecoder& decoder, std::string_view label, Parse parse) {
  const Result<Enum> value = parse(decoder.text(label));
  if (!value)
    decoder.note(value.error().message);
  return value.value_or(Enum{});
}

double read_fraction(FieldDecoder& decoder, std::string_view label) {
  const std::string text = decoder.text(label);
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    decoder.note(fmt::format("field '{}' is no number", label));
  return value;
}

}  // namespace

Fields to_fields(const Problem& problem) {
  Fields fields;
  fields.add("pass", to_string(problem.pass));
  fields.add("dtype", dtype_word(problem.dtype));
  fields.add("layout", to_string(problem.layout));
  fields.add("mask", to_string(problem.mask));
  fields.add("bias", to_string(problem.bias));
  for (const auto& [label, member] : kSizes) add_number(fields, label, problem.*member);
  for (const auto& [label, member] : kFlags)
    add_number(fields, label, problem.*member ? 1 : 0);
  fields.add("dropout", fmt::format("{}", problem.dropout));  // reads back exactly
  for (const auto& [label, member] : kTensors) {
    const Strides& strides = problem.*member;
    std::string text = fmt::format("{},{},{},{}", strides.batch, strides.head,
                                   strides.sequence, strides.dim);
    if (strides.group != 0)
      text += fmt::format(",{}", strides.group);
    fields.add(label, text);
  }
  return fields;
}

Result<Problem> problem_from(const Fields& fields) {
  FieldDecoder decoder(fields, kProblemSubject);
  Problem problem;
  problem.pass = read_word<Pass>(decoder, "pass", parse_pass);
  problem.dtype = read_word<DType>(decoder, "dtype", parse_dtype);
  problem.layout = read_word<Layout>(decoder, "layout", parse_layout);
  problem.mask = read_word<Mask>(decoder, "mask", parse_mask);
  problem.bias = read_word<Bias>(decoder, "bias", parse_bias);
  for (const auto& [label, member] : kSizes)
    problem.*member = decoder.number<std::int64_t>(label);
  for (const auto& [label, member] : kFlags)
    problem.*member = decoder.number<unsigned>(label) != 0;
  problem.dropout = read_fraction(decoder, "dropout");
  for (const auto& [label, member] : kTensors)
    problem.*member = read_strides(decoder, label);
  Problem read = KILN_TRY(decoder.finish(problem));
  KILN_TRY(validate(read));
  return read;
}

Fields shown_fields(const Problem& problem) {
  Problem usual;
  usual.layout = problem.layout;
  for (const auto& [label, member] : kSizes) usual.*member = problem.*member;
  usual.window_left = usual.window_right = -1;
  set_strides(usual);
  const Fields all = to_fields(problem);
  const Fields expected = to_fields(usual);
  Fields shown;
  for (std::size_t i = 0; i < all.list().size(); ++i) {
    const auto& [label, value] = all.list()[i];
    const bool is_size =
        std::ranges::find(kSizes, label, &Size::label) != std::end(kSizes);
    const bool is_window = label.starts_with("window");
    const bool is_always = label == "dtype" || label == "mask" || label == "layout" ||
                           (is_size && !is_window);
    const bool is_usual = is_window ? value == "-1" : value == expected.list()[i].value;
    // The name includes the pass. A backward pass implies training and statistics.
    const bool is_implied =
        label == "pass" ||
        (problem.pass == Pass::kBackward && (label == "training" || label == "stats"));
    if (!is_implied && (is_always || !is_usual))
      shown.add(label, value);
  }
  return shown;
}

std::string flags_of(const Problem& problem) {
  std::string flags = fmt::format(
      "--pass {} --dtype {} --batch {} --heads {} --kv-heads {} --sq {} --skv {} --dqk "
      "{} --dv {} --mask {} --layout {}",
      to_string(problem.pass), dtype_word(problem.dtype), problem.batch, problem.heads,
      problem.kv_heads, problem.sq, problem.skv, problem.dqk, problem.dv,
      to_string(problem.mask), to_string(problem.layout));
  const auto out = std::back_inserter(flags);
  if (problem.window_left != -1 || problem.window_right != -1)
    fmt::format_to(out, " --window {},{}", problem.window_left, problem.window_right);
  if (problem.bias != Bias::kNone)
    fmt::format_to(out, " --bias {}", to_string(problem.bias));
  if (problem.dropout != 0)
    fmt::format_to(out, " --dropout {}", problem.dropout);
  for (const auto& [label, member] : kFlags) {
    if (problem.*member)
      fmt::format_to(out, " --{}", flag_of(label));
  }
  return flags;
}

}  // namespace kiln::attention
