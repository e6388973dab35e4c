#include "tools/attention/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::Problem;

constexpr std::uint64_t kMostSize = std::uint64_t{1} << 31;

/// Replaces the field that begins a message, "problem.kv_heads: …", by its flag.
std::string as_flag(const std::string& message) {
  const std::size_t end = message.find(':');
  const std::size_t dot = message.find('.');
  if (end == std::string::npos || dot > end)
    return message;
  std::string flag = message.substr(dot + 1, end - dot - 1);
  if (flag.starts_with("window"))
    flag = "window";  // one flag for both sides
  std::ranges::replace(flag, '_', '-');
  return "--" + flag + message.substr(end);
}

tl::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::kInvalidArgument, "attention: " + std::move(message));
}

Result<std::int64_t> parse_dimension(std::string_view flag, const std::string& text) {
  return static_cast<std::int64_t>(KILN_TRY(parse_number(flag, text, {1, kMostSize})));
}

Result<std::int64_t> parse_side(std::string_view text) {
  std::int64_t side = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, side);
  if (error != std::errc() || after != end)
    return wrong(
        fmt::format("--window: '{}' is no number; write LEFT,RIGHT, and -1 for "
                    "unlimited",
                    text));
  return side;
}

Result<void> read_window(const std::string& text, std::int64_t& left,
                         std::int64_t& right) {
  if (text.empty())
    return {};
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos)
    return wrong(fmt::format(
        "--window: '{}' is not LEFT,RIGHT, such as 128,0; -1 is unlimited", text));
  left = KILN_TRY(parse_side(std::string_view(text).substr(0, comma)));
  right = KILN_TRY(parse_side(std::string_view(text).substr(comma + 1)));
  return {};
}

Result<double> read_dropout(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (!text.empty() && (error != std::errc() || after != end))
    return wrong(fmt::format("--dropout: '{}' is no probability from 0 to 1", text));
  return value;
}

/// Leaves `value` unchanged if `text` is empty.
Result<void> read_size(std::string_view flag, const std::string& text,
                       std::int64_t& value) {
  if (!text.empty())
    value = KILN_TRY(parse_dimension(flag, text));
  return {};
}

template <typename Enum>
Result<void> read_word(std::string_view flag, const std::string& text,
                       Result<Enum> (*parse)(std::string_view), Enum& value) {
  if (!text.empty())
    value = KILN_TRY(named(flag, parse(text)));
  return {};
}

std::string words(std::span<const std::string_view> all) {
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

Result<Problem> read_problem(const ProblemOptions& options) {
  std::vector<std::string_view> missing;
  for (const auto& [flag, value] :
       {std::pair<std::string_view, const std::string&>{"--pass", options.pass},
        {"--dtype", options.dtype},
        {"--batch", options.batch},
        {"--heads", options.heads},
        {"--sq", options.sq},
        {"--skv", options.skv},
        {"--dqk", options.dqk},
        {"--mask", options.mask}}) {
    if (value.empty())
      missing.push_back(flag);
  }
  if (!missing.empty())
    return wrong(fmt::format("the problem needs {}", fmt::join(missing, ", ")));
  Problem problem;
  problem.heads = KILN_TRY(parse_dimension("--heads", options.heads));
  problem.kv_heads = problem.heads;
  problem.dqk = KILN_TRY(parse_dimension("--dqk", options.dqk));
  problem.dv = problem.dqk;
  return read_problem_over(options, problem);
}

Result<Problem> read_problem_over(const ProblemOptions& options, Problem problem) {
  auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o, mask,
         window_left, window_right, bias_kind, dropout, bias] = problem.common();
  auto& [pass, training, stats, bias_gradient, deterministic, capture] =
      problem.of_pass();
  KILN_TRY(read_word("--pass", options.pass, attention::parse_pass, pass));
  KILN_TRY(read_word("--dtype", options.dtype, attention::parse_dtype, dtype));
  KILN_TRY(read_word("--mask", options.mask, attention::parse_mask, mask));
  KILN_TRY(read_word("--bias", options.bias, attention::parse_bias, bias_kind));
  KILN_TRY(read_word("--layout", options.layout, attention::parse_layout, layout));
  KILN_TRY(read_size("--batch", options.batch, batch));
  KILN_TRY(read_size("--heads", options.heads, heads));
  KILN_TRY(read_size("--kv-heads", options.kv_heads, kv_heads));
  KILN_TRY(read_size("--sq", options.sq, sq));
  KILN_TRY(read_size("--skv", options.skv, skv));
  KILN_TRY(read_size("--dqk", options.dqk, dqk));
  KILN_TRY(read_size("--dv", options.dv, dv));
  KILN_TRY(read_window(options.window, window_left, window_right));
  if (!options.dropout.empty())
    dropout = KILN_TRY(read_dropout(options.dropout));
  const bool is_backward = pass == attention::Pass::kBackward;
  training = training || options.training || is_backward;
  stats = options.stats || training;
  capture = options.capture;
  deterministic = options.deterministic;
  bias_gradient = options.bias_gradient;
  set_strides(problem);
  if (const auto valid = validate(problem); !valid)
    return wrong(as_flag(valid.error().message));
  return problem;
}

void add_problem_options(OptionSet& cli, ProblemOptions& options) {
  const auto add = [&](const char* flag, std::string& value, const char* type,
                       const std::string& meaning) {
    cli.option(flag, value, type, meaning);
  };
  add("--pass", options.pass, "PASS", words(attention::pass_words()));
  add("--dtype", options.dtype, "TYPE", words(attention::dtype_words()));
  add("--batch", options.batch, "N", "Sequences");
  add("--heads", options.heads, "N", "Heads of the query");
  add("--kv-heads", options.kv_heads, "N",
      "Heads of key and value (default: those of the query)");
  add("--sq", options.sq, "N", "Length of the query; of the longest one with thd");
  add("--skv", options.skv, "N", "Length of key and value");
  add("--dqk", options.dqk, "N", "Head dimension of query and key");
  add("--dv", options.dv, "N", "Head dimension of value (default: that of the query)");
  add("--mask", options.mask, "MASK", words(attention::mask_words()));
  add("--window", options.window, "L,R",
      "Sliding window: keys before and after the diagonal; -1 is unlimited");
  add("--bias", options.bias, "BIAS", words(attention::bias_words()));
  add("--dropout", options.dropout, "P", "Probability of dropout");
  add("--layout", options.layout, "LAYOUT",
      words(attention::layout_words()) + "; thd has sequences of their own lengths");
  cli.flag("--bias-gradient", options.bias_gradient,
           "The gradient of the bias is wanted: with --pass bwd --bias post_scale");
  cli.flag("--training", options.training,
           "A forward pass whose backward pass follows");
  cli.flag("--stats", options.stats, "The softmax statistics (LSE) are wanted");
  cli.flag("--capture", options.capture, "It runs inside a CUDA graph");
  cli.flag("--deterministic", options.deterministic,
           "The same bits at every run are wanted");
}

}  // namespace kiln::tools
