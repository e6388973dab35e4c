#include "attention/problem_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

#include "codec/field_decoder.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::string_view kProblemSubject = "attention problem";

/// Calls `use` with the label of each field, the field and, of an enumeration, what
/// reads its words, in the order of to_fields(). Names every field, so that one that is
/// added does not compile until it is in here.
template <typename AnyProblem, typename Use>
void for_each_field(AnyProblem& problem, const Use& use) {
  auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o, mask,
         window_left, window_right, bias_kind, dropout, bias] = problem.common();
  auto& [pass, training, stats, bias_gradient, deterministic, capture] =
      problem.of_pass();
  use("pass", pass, parse_pass);
  use("dtype", dtype, parse_dtype);
  use("layout", layout, parse_layout);
  use("mask", mask, parse_mask);
  use("bias", bias_kind, parse_bias);
  use("batch", batch);
  use("heads", heads);
  use("kv_heads", kv_heads);
  use("sq", sq);
  use("skv", skv);
  use("dqk", dqk);
  use("dv", dv);
  use("window_left", window_left);
  use("window_right", window_right);
  use("training", training);
  use("deterministic", deterministic);
  use("stats", stats);
  use("capture", capture);
  use("bias_gradient", bias_gradient);
  use("dropout", dropout);
  use("q_strides", q);
  use("k_strides", k);
  use("v_strides", v);
  use("o_strides", o);
  use.later("bias_strides", bias);
}

std::string text_of(const Strides& strides) {
  const auto& [batch, head, sequence, dim, group] = strides;
  std::string text = fmt::format("{},{},{},{}", batch, head, sequence, dim);
  if (group != 0)
    text += fmt::format(",{}", group);
  return text;
}

template <typename Value>
std::string text_of(Value value) {
  if constexpr (std::is_same_v<Value, DType>)
    return std::string(dtype_word(value));
  else if constexpr (std::is_enum_v<Value>)
    return std::string(to_string(value));
  else if constexpr (std::is_same_v<Value, bool>)
    return value ? "1" : "0";
  else
    return fmt::format("{}", value);  // reads back exactly
}

Strides read_strides(FieldDecoder& decoder, std::string_view label) {
  const std::string text = decoder.text(label);
  Strides strides;
  auto& [batch, head, sequence, dim, group] = strides;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool is_right = true;
  const bool has_groups = std::ranges::count(text, ',') == 4;
  const std::int64_t* const last = has_groups ? &group : &dim;
  for (std::int64_t* const value : {&batch, &head, &sequence, &dim, &group}) {
    const auto [next, error] = std::from_chars(at, end, *value);
    const bool is_last = value == last;
    is_right = is_right && error == std::errc{} &&
               (is_last ? next == end : next != end && *next == ',');
    at = is_last || next == end ? end : next + 1;
    if (is_last)
      break;
  }
  if (!is_right || (has_groups && group == 0))  // each value has one encoding
    decoder.note(fmt::format("field '{}' has neither four strides nor five", label));
  return strides;
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

/// Writes a field that came later only where it is not its default: the keys of
/// problems without it stay.
class Writer {
 public:
  explicit Writer(Fields& fields) : fields_(fields) {}

  template <typename Value, typename... Parse>
  void operator()(std::string_view label, const Value& value,
                  Parse... /*parse*/) const {
    fields_.add(label, text_of(value));
  }
  template <typename Value>
  void later(std::string_view label, const Value& value) const {
    if (value != Value{})
      (*this)(label, value);
  }

 private:
  Fields& fields_;
};

/// Reads what Writer wrote.
class Reader {
 public:
  explicit Reader(FieldDecoder& decoder) : decoder_(decoder) {}

  template <typename Enum>
  void operator()(std::string_view label, Enum& value,
                  Result<Enum> (*parse)(std::string_view)) const {
    const Result<Enum> read = parse(decoder_.text(label));
    if (!read)
      decoder_.note(read.error().message);
    value = read.value_or(Enum{});
  }
  void operator()(std::string_view label, std::int64_t& size) const {
    size = decoder_.number<std::int64_t>(label);
  }
  void operator()(std::string_view label, bool& flag) const {
    flag = decoder_.number<unsigned>(label) != 0;
  }
  void operator()(std::string_view label, double& fraction) const {
    fraction = read_fraction(decoder_, label);
  }
  void operator()(std::string_view label, Strides& strides) const {
    strides = read_strides(decoder_, label);
  }
  template <typename Value>
  void later(std::string_view label, Value& value) const {
    if (decoder_.texts(label).empty())
      return;
    (*this)(label, value);
    if (value == Value{})  // each value has one encoding
      decoder_.note(fmt::format("field '{}' has its default", label));
  }

 private:
  FieldDecoder& decoder_;
};

/// What people always see of a problem.
constexpr std::array<std::string_view, 10> kAlwaysShown{
    "dtype", "layout", "mask", "batch", "heads", "kv_heads", "sq", "skv", "dqk", "dv"};

}  // namespace

Fields to_fields(const Problem& problem) {
  Fields fields;
  for_each_field(problem, Writer(fields));
  return fields;
}

Result<Problem> problem_from(const Fields& fields) {
  FieldDecoder decoder(fields, kProblemSubject);
  Problem problem;
  for_each_field(problem, Reader(decoder));
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
  const Fields all = to_fields(problem);
  const Fields expected = to_fields(usual);
  Fields shown;
  for (const auto& [label, value] : all.list()) {
    const bool is_always = std::ranges::find(kAlwaysShown, label) != kAlwaysShown.end();
    const bool is_usual = value == expected.find(label);
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
  const auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o,
               mask, window_left, window_right, bias_kind, dropout, bias] =
      problem.common();  // no flag says strides
  const auto& [pass, training, stats, bias_gradient, deterministic, capture] =
      problem.of_pass();
  std::string flags = fmt::format(
      "--pass {} --dtype {} --batch {} --heads {} --kv-heads {} --sq {} --skv {} --dqk "
      "{} --dv {} --mask {} --layout {}",
      to_string(pass), dtype_word(dtype), batch, heads, kv_heads, sq, skv, dqk, dv,
      to_string(mask), to_string(layout));
  const auto out = std::back_inserter(flags);
  if (window_left != -1 || window_right != -1)
    fmt::format_to(out, " --window {},{}", window_left, window_right);
  if (bias_kind != Bias::kNone)
    fmt::format_to(out, " --bias {}", to_string(bias_kind));
  if (dropout != 0)
    fmt::format_to(out, " --dropout {}", dropout);
  flags += training ? " --training" : "";
  flags += deterministic ? " --deterministic" : "";
  flags += stats ? " --stats" : "";
  flags += capture ? " --capture" : "";
  flags += bias_gradient ? " --bias-gradient" : "";
  return flags;
}

}  // namespace kiln::attention
