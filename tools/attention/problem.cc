// Reads the flags that describe a problem of attention.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/problem_table.h"
#include "tools/attention/command.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::Problem;

constexpr std::string_view kWindow = "window";
constexpr std::uint64_t kMostSize = std::uint64_t{1} << 31;

/// Replaces the field that begins a message, "problem.kv_heads: …", by its flag.
std::string as_flag(const std::string& message) {
  const std::size_t end = message.find(':');
  const std::size_t dot = message.find('.');
  if (end == std::string::npos || dot > end)
    return message;
  std::string flag = message.substr(dot + 1, end - dot - 1);
  if (flag.starts_with(kWindow))
    flag = kWindow;  // one flag for both sides
  return attention::flag_of(flag) + message.substr(end);
}

Result<std::int64_t> parse_dimension(std::string_view flag, const std::string& text) {
  return static_cast<std::int64_t>(KILN_TRY(parse_number(flag, text, {1, kMostSize})));
}

Result<std::int64_t> parse_side(std::string_view text) {
  const auto side = number_of<std::int64_t>(text);
  if (!side)
    return wrong_attention(
        "--window: '{}' is no number; write LEFT,RIGHT, and -1 for unlimited", text);
  return *side;
}

Result<void> read_window(const std::string& text, std::int64_t& left,
                         std::int64_t& right) {
  if (text.empty())
    return {};
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos)
    return wrong_attention(
        "--window: '{}' is not LEFT,RIGHT, such as 128,0; -1 is unlimited", text);
  left = KILN_TRY(parse_side(std::string_view(text).substr(0, comma)));
  right = KILN_TRY(parse_side(std::string_view(text).substr(comma + 1)));
  return {};
}

Result<void> read(const std::string& flag, const std::string& text, double& value) {
  const auto number = number_of<double>(text);
  if (!number)
    return wrong_attention("{}: '{}' is no number", flag, text);
  value = *number;
  return {};
}

Result<void> read(const std::string& flag, const std::string& text,
                  std::int64_t& value) {
  value = KILN_TRY(parse_dimension(flag, text));
  return {};
}

template <typename Enum>
Result<void> read(const std::string& flag, const std::string& text, Enum& value) {
  value = KILN_TRY(named(flag, parse_word<Enum>(text)));
  return {};
}

}  // namespace

Result<Problem> read_problem(const ProblemOptions& options) {
  std::vector<std::string> missing;
  for (const char* const field :
       {"pass", "dtype", "batch", "heads", "sq", "skv", "dqk", "mask"})
    if (options.text(field).empty())
      missing.push_back(attention::flag_of(field));
  if (!missing.empty())
    return wrong_attention("the problem needs {}", fmt::join(missing, ", "));
  Problem problem;
  problem.kv_heads = KILN_TRY(parse_dimension("--heads", options.text("heads")));
  problem.dv = KILN_TRY(parse_dimension("--dqk", options.text("dqk")));
  return read_problem_over(options, problem);
}

Result<Problem> read_problem_over(const ProblemOptions& options, Problem problem) {
  Result<void> is_read;
  attention::for_each_problem_field([&](const auto& field) {
    auto& value = field.of(problem);
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, bool>)
      value = options.flags.at(field.name) || (value && field.name == "training");
    else if constexpr (!std::is_same_v<Value, attention::Strides>)
      if (is_read && !is_of_window(field) && !options.text(field.name).empty())
        is_read = read(attention::flag_of(field.name), options.text(field.name), value);
  });
  KILN_TRY(std::move(is_read));
  KILN_TRY(
      read_window(options.text(kWindow), problem.window_left, problem.window_right));
  problem.training = problem.training || problem.pass == attention::Pass::kBackward;
  problem.stats = problem.stats || problem.training;
  set_strides(problem);
  if (const auto valid = validate(problem); !valid)
    return wrong_attention("{}", as_flag(valid.error().message));
  return problem;
}

void add_problem_options(OptionSet& cli, ProblemOptions& options) {
  attention::for_each_problem_field([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(field.of(Problem()))>;
    const std::string flag = attention::flag_of(field.name);
    std::string meaning(field.meaning);
    if constexpr (std::is_enum_v<Value>)
      meaning = fmt::format("{}{}", fmt::join(words_of<Value>(), ", "), meaning);
    if constexpr (std::is_same_v<Value, bool>)
      cli.flag(flag, options.flags[field.name], meaning);
    else if constexpr (!std::is_same_v<Value, attention::Strides>)
      if (!is_of_window(field))
        cli.option(flag, options.texts[field.name],
                   std::is_enum_v<Value> ? "WORD" : "N", meaning);
  });
  cli.option("--window", options.texts[kWindow], "L,R",
             "Sliding window: keys before and after the diagonal; -1 is unlimited");
}

}  // namespace kiln::tools
