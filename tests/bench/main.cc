// The programs of this folder: what Kiln costs, beside the least that it could. Prints
// a table; no figure makes it fail. Google Benchmark runs the rows, so that its options
// work:
// --benchmark_filter=hit, --benchmark_list_tests.

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "compile/pool/cores.h"
#include "tests/bench/rows.h"

namespace kiln::bench {
namespace {

using nlohmann::ordered_json;

struct Options {
  Settings settings;
  bool json = false;
  bool smoke = false;
  std::vector<std::string> child;  // its name and arguments
  std::vector<std::string> rest;   // Google Benchmark's
};

std::string duration_text(Seconds duration) {
  const double seconds = duration.count();
  if (seconds < 1e-6)
    return fmt::format("{:.1f} ns", seconds * 1e9);
  if (seconds < 1e-3)
    return fmt::format("{:.2f} µs", seconds * 1e6);
  if (seconds < 1)
    return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string limit_text(const Finding& finding) {
  const Limit& limit = finding.limit;
  if (finding.floor_name.empty())
    return duration_text(limit.slack);
  const std::string ratio =
      limit.ratio == 1 ? "" : fmt::format("{:.2f} x", limit.ratio);
  if (limit.slack.count() == 0)
    return ratio.empty() ? "1 x" : ratio;
  return fmt::format("{}{}{}", ratio, ratio.empty() ? "+ " : " + ",
                     duration_text(limit.slack));
}

// fmt pads by code points only where it knows them to be one column wide; so it does
// for the one sign used here.
constexpr const char* kColumns = "{:<56} {:>11} {:>11} {:>7} {:>18} {:>6} {}";

/// Of the last minute; how busy others kept the machine.
double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

std::string table_head() {
  return fmt::format(kColumns, "what", "measured", "floor", "ratio", "at most", "noise",
                     "verdict");
}

/// Without a line's end.
std::string table_line(const Finding& finding) {
  if (finding.error)
    return fmt::format("{:<56} failed: {}", finding.what, finding.error->message);
  const bool has_floor = !finding.floor_name.empty();
  return fmt::format(kColumns, finding.what, duration_text(finding.measured),
                     has_floor ? duration_text(finding.floor) : "",
                     has_floor ? fmt::format("{:.2f}", finding.ratio) : "",
                     limit_text(finding), fmt::format("{:.0f} %", finding.noise * 100),
                     finding.is_within() ? "within" : "OVER");
}

/// {"load","cores","rows":[{"name","what","floor_name","measured_s","floor_s","ratio",
/// "limit_ratio","limit_slack_s","within","noise","rounds","error"}]}
ordered_json to_json(const std::vector<Finding>& findings) {
  ordered_json rows = ordered_json::array();
  for (const Finding& finding : findings) {
    ordered_json row = {{"name", finding.name},
                        {"what", finding.what},
                        {"floor_name", finding.floor_name},
                        {"measured_s", finding.measured.count()},
                        {"floor_s", finding.floor.count()},
                        {"ratio", finding.ratio},
                        {"limit_ratio", finding.limit.ratio},
                        {"limit_slack_s", finding.limit.slack.count()},
                        {"within", finding.is_within()},
                        {"noise", finding.noise},
                        {"rounds", finding.rounds},
                        {"error", nullptr}};
    if (finding.error)
      row["error"] = finding.error->message;
    rows.push_back(std::move(row));
  }
  return {{"load", load_average()},
          {"cores", compile::usable_cores()},
          {"rows", std::move(rows)}};
}

/// Says nothing: the table is the report.
class SilentReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

/// Every row, each as small as it can be: do they still work?
void make_small(Settings& settings) {
  settings.rounds = 1;
  settings.long_rows = true;
  settings.set_kernels = 12;
  settings.many_entries = 300;
  settings.warm_kernels = 2;
  settings.cub_kernels = 2;
  settings.job_kernels = 2;
  settings.batch_calls = 20;
  settings.publishes = 3;
  settings.transfers = 3;
}

/// One benchmark a row: it does its rounds itself and leaves the finding behind.
void add(const Row& row, const Options& options, std::vector<Finding>& findings) {
  const auto run = [row, options, &findings](benchmark::State& state) {
    for ([[maybe_unused]] const auto once : state)
      findings.push_back(compare(row, options.settings.rounds));
    if (!options.json)
      fmt::print("{}\n", table_line(findings.back()));
    std::fflush(stdout);
  };
  benchmark::RegisterBenchmark(row.name.c_str(), run)->Iterations(1);
}

int run(const Options& options, const char* program) {
  std::vector<Finding> findings;
  for (const Row& row : all_rows(options.settings)) add(row, options, findings);

  std::vector<std::string> arguments{program};
  arguments.insert(arguments.end(), options.rest.begin(), options.rest.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  if (benchmark::ReportUnrecognizedArguments(argc, argv.data()))
    return 2;

  if (!options.json)
    fmt::print("load {:.1f}\n{}\n", load_average(), table_head());
  std::fflush(stdout);
  SilentReporter silent;
  benchmark::RunSpecifiedBenchmarks(&silent);
  if (options.json)
    fmt::print("{}\n", to_json(findings).dump(2));
  else
    fmt::print("medians of {} interleaved pairs; load {:.1f}\n",
               options.settings.rounds, load_average());
  const bool all_work =
      std::none_of(findings.begin(), findings.end(),
                   [](const Finding& finding) { return finding.error.has_value(); });
  return all_work ? 0 : 1;
}

/// do_child() as an exit status, what failed on stderr. `arguments` are what stands
/// after the name.
int run_child(std::string_view name, const std::vector<std::string>& arguments) {
  const auto done = do_child(name, arguments);
  if (done)
    return 0;
  fmt::print(stderr, "{}: {}\n", name, done.error().message);
  return 1;
}

int run_main(int argc, char** argv) {
  Options options;
  CLI::App app("What Kiln costs, beside the least that it could");
  options.settings.folder = std::filesystem::temp_directory_path();
  app.add_flag("--long", options.settings.long_rows,
               "The rows with 100,000 entries and minutes of compiling, too");
  app.add_flag("--smoke", options.smoke, "Each row once, tiny: do they still work?");
  app.add_flag("--json", options.json, "One JSON document instead of the table");
  app.add_option("--rounds", options.settings.rounds, "Pairs of samples a row");
  app.add_option("--dir", options.settings.folder, "Where scratch caches go");
  app.add_option("--child", options.child)->group("");
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  options.rest = app.remaining();
  if (!options.child.empty())
    return run_child(options.child.front(),
                     {std::next(options.child.begin()), options.child.end()});
  if (options.smoke)
    make_small(options.settings);
  return run(options, *argv);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) {
  return kiln::bench::run_main(argc, argv);
}
