// kiln attention explain: would cuDNN run this attention problem there, and if not, why
// and what to do.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "attention/explain.h"
#include "attention/installed_cudnn.h"
#include "device/profile.h"
#include "device/target.h"
#include "tools/architectures.h"
#include "tools/attention_output.h"
#include "tools/exit_code.h"
#include "tools/option_values.h"
#include "tools/verbs.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::CudnnVersion;
using attention::Problem;

constexpr std::uint64_t kMostSize = std::uint64_t{1} << 31;

struct Options {
  std::string action;
  std::string arch, profile, cudnn;
  std::string pass, dtype, batch, heads, kv_heads, sq, skv, dqk, dv, mask;
  std::string window, bias, dropout, layout, parallelism;
  bool training = false, stats = false, capture = false, deterministic = false;
  bool bias_gradient = false;
  bool matrix = false;
};

tl::unexpected<Error> wrong(std::string message) {
  return fail(ErrorCode::kInvalidArgument, "attention: " + std::move(message));
}

/// `parsed`, its error naming `flag`.
template <typename T>
Result<T> named(std::string_view flag, Result<T> parsed) {
  if (!parsed)
    return fail(parsed.error().code,
                fmt::format("attention: {} {}", flag, parsed.error().message));
  return parsed;
}

Result<std::int64_t> parse_size(std::string_view flag, const std::string& text) {
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

Result<void> read_window(const std::string& text, Problem& problem) {
  if (text.empty())
    return {};
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos)
    return wrong(fmt::format(
        "--window: '{}' is not LEFT,RIGHT, such as 128,0; -1 is unlimited", text));
  problem.window_left = KILN_TRY(parse_side(std::string_view(text).substr(0, comma)));
  problem.window_right = KILN_TRY(parse_side(std::string_view(text).substr(comma + 1)));
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

Result<void> check_given(const Options& options) {
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
  if (options.matrix)
    return {};
  if (options.arch.empty() && options.profile.empty())
    return wrong("say for which device: --arch A or --profile FILE|NAME, or --matrix");
  if (options.cudnn.empty())
    return wrong("say for which cuDNN: --cudnn VERSION or --cudnn installed");
  return {};
}

Result<Problem> read_problem(const Options& options) {
  Problem problem;
  problem.pass = KILN_TRY(named("--pass", attention::parse_pass(options.pass)));
  problem.dtype = KILN_TRY(named("--dtype", attention::parse_dtype(options.dtype)));
  problem.batch = KILN_TRY(parse_size("--batch", options.batch));
  problem.heads = KILN_TRY(parse_size("--heads", options.heads));
  problem.kv_heads = options.kv_heads.empty()
                         ? problem.heads
                         : KILN_TRY(parse_size("--kv-heads", options.kv_heads));
  problem.sq = KILN_TRY(parse_size("--sq", options.sq));
  problem.skv = KILN_TRY(parse_size("--skv", options.skv));
  problem.dqk = KILN_TRY(parse_size("--dqk", options.dqk));
  problem.dv =
      options.dv.empty() ? problem.dqk : KILN_TRY(parse_size("--dv", options.dv));
  problem.mask = KILN_TRY(named("--mask", attention::parse_mask(options.mask)));
  problem.bias = KILN_TRY(named("--bias", attention::parse_bias(options.bias)));
  problem.layout = KILN_TRY(named("--layout", attention::parse_layout(options.layout)));
  KILN_TRY(read_window(options.window, problem));
  problem.dropout = KILN_TRY(read_dropout(options.dropout));
  const bool is_backward = problem.pass == attention::Pass::kBackward;
  problem.training = options.training || is_backward;
  problem.stats = options.stats || problem.training;
  problem.capture = options.capture;
  problem.deterministic = options.deterministic;
  problem.bias_gradient = options.bias_gradient;
  set_strides(problem);
  if (const auto valid = validate(problem); !valid)
    return wrong(valid.error().message);
  return problem;
}

Result<ComputeCapability> known(device::Architecture architecture) {
  for (const auto& each : device::known_architectures()) {
    if (each.capability == architecture.capability)
      return architecture.capability;
  }
  return wrong(
      fmt::format("--arch: no NVRTC ever built for {}", to_string(architecture)));
}

Result<std::vector<ComputeCapability>> read_architectures(const Config& config,
                                                          const Options& options) {
  std::vector<ComputeCapability> found;
  if (!options.arch.empty() && !options.profile.empty())
    return wrong("--arch and --profile exclude each other");
  if (!options.profile.empty()) {
    const auto profile = KILN_TRY(device::read_profile(options.profile));
    return std::vector{profile.capability};
  }
  if (options.arch.empty())
    return std::vector<ComputeCapability>{{7, 5}, {8, 0},  {8, 6},  {8, 9},
                                          {9, 0}, {10, 0}, {10, 3}, {12, 0}};
  const auto list = KILN_TRY(device::parse_architecture_list(options.arch));
  for (const device::Architecture each : list.architectures)
    found.push_back(KILN_TRY(known(each)));
  if (list.native) {
    const auto present = KILN_TRY(devices_present(config));
    if (present.empty())
      return wrong("no NVIDIA device is present here, so say for which: --arch 9.0");
    found.insert(found.end(), present.begin(), present.end());
  }
  if (found.size() > 1 && !options.matrix)
    return wrong("one architecture at a time; --matrix takes several");
  return found;
}

Result<std::vector<CudnnVersion>> read_versions(const Config& config,
                                                const Options& options) {
  if (options.cudnn == "installed")
    return std::vector{KILN_TRY(attention::installed_cudnn_version(
        config.cudnn.value_or(""), LibraryPlaces::of_process()))};
  if (!options.cudnn.empty())
    return std::vector{
        KILN_TRY(named("--cudnn", attention::parse_cudnn_version(options.cudnn)))};
  return std::vector<CudnnVersion>{{8, 9, 7},  {9, 0, 0},  {9, 1, 0},  {9, 3, 0},
                                   {9, 5, 0},  {9, 7, 0},  {9, 10, 2}, {9, 11, 0},
                                   {9, 13, 1}, {9, 18, 1}, {9, 19, 0}, {9, 21, 0}};
}

Result<int> run(Context& context, const Options& options) {
  const std::vector<std::string> actions{"explain"};
  if (options.action != actions[0])
    return wrong(options.action.empty()
                     ? "say what: kiln attention explain"
                     : fmt::format("there is no `attention {}`{}", options.action,
                                   did_you_mean(options.action, actions)));
  KILN_TRY(check_given(options));
  const Problem problem = KILN_TRY(read_problem(options));
  attention::ExplainOptions how;
  if (!options.parallelism.empty())
    how.parallelism = KILN_TRY(
        named("--cp", attention::parse_context_parallelism(options.parallelism)));
  if (options.cudnn == "installed")
    how.source = attention::CudnnSource::kInstalled;
  const auto architectures = KILN_TRY(read_architectures(context.config, options));
  const auto versions = KILN_TRY(read_versions(context.config, options));
  std::vector<MatrixCell> cells;
  for (const ComputeCapability arch : architectures) {
    for (const CudnnVersion cudnn : versions)
      cells.push_back({arch, cudnn, explain({problem, arch, cudnn}, how)});
  }
  if (options.matrix && context.json)
    print_json(matrix_json(cells));
  else if (options.matrix)
    print(matrix_text(problem, cells, context.out));
  else if (context.json)
    print_json(explanation_json(cells.at(0).explanation));
  else
    print(explanation_text({problem, cells.at(0).arch, cells.at(0).cudnn}, how,
                           cells.at(0).explanation, context.out));
  return kAllDone;
}

std::string words(std::span<const std::string_view> all) {
  return fmt::format("{}", fmt::join(all, ", "));
}

void add_problem_options(CLI::App& app, Options& options) {
  const auto add = [&](const char* flag, std::string& value, const char* type,
                       const std::string& meaning) {
    app.add_option(flag, value, meaning)->type_name(type);
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
  app.add_flag("--bias-gradient", options.bias_gradient,
               "The gradient of the bias is wanted: with --pass bwd --bias post_scale");
  app.add_flag("--training", options.training,
               "A forward pass whose backward pass follows");
  app.add_flag("--stats", options.stats, "The softmax statistics (LSE) are wanted");
  app.add_flag("--capture", options.capture, "It runs inside a CUDA graph");
  app.add_flag("--deterministic", options.deterministic,
               "The same bits at every run are wanted");
}

}  // namespace

Run add_attention(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->bias = "none";
  options->layout = "bshd";
  app.add_option("ACTION", options->action,
                 "explain: would cuDNN run this problem there; if not, why, and what "
                 "to do");
  app.add_option("--arch", options->arch,
                 "Architecture: 9.0, sm_90 or native; with --matrix a list")
      ->type_name("A");
  app.add_option("--profile", options->profile,
                 "The device that this profile describes: a file or a published one, "
                 "such as h100-sxm")
      ->type_name("FILE|NAME");
  app.add_option("--cudnn", options->cudnn,
                 "Version of cuDNN, such as 9.5.0, or installed")
      ->type_name("VERSION");
  add_problem_options(app, *options);
  app.add_option("--cp", options->parallelism,
                 "Context parallelism, MODE:RANKS: p2p, a2a, all_gather or a2a+p2p; "
                 "the problem is then the whole one, and its steps are decided on")
      ->type_name("MODE:RANKS");
  app.add_flag("--matrix", options->matrix,
               "A table over architectures and versions of cuDNN");
  app.footer(
      "Example:\n"
      "  kiln attention explain --arch 9.0 --cudnn 9.1.0 --pass bwd --dtype bf16 \\\n"
      "    --batch 2 --heads 16 --sq 1024 --skv 1024 --dqk 192 --dv 128 --mask causal\n"
      "\nExit status: 0 whatever the answer is.\n");
  return
      [options](Context& context) { return finish(context, run(context, *options)); };
}

}  // namespace kiln::tools
