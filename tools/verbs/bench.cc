// kiln bench: how fast the kernels run on this machine's device: memory-bound ones next
// to a copy, compute-bound ones next to cuDNN.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "kiln/service.h"
#include "request/selection.h"
#include "tools/bench/measure.h"
#include "tools/output/progress.h"
#include "tools/verbs.h"
#include "util/nearest.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

struct BenchOptions {
  std::vector<std::string> names;
  std::string device = "0";
  std::string rounds = "20";
};

struct BenchRow {
  BenchCase of;
  BenchTime time;
  std::optional<Error> error;
};

/// Cases that are left out for one kind of reason.
struct LeftOut {
  std::string backend;
  BenchRefusal why;  // of the first case
  int cases = 1;
};

struct BenchReport {
  std::vector<BenchRow> rows;
  std::vector<LeftOut> left_out;

  void leave_out(const std::string& backend, BenchRefusal why) {
    const auto known = std::ranges::find_if(left_out, [&](const LeftOut& each) {
      return each.backend == backend && each.why.subject == why.subject;
    });
    if (known != left_out.end())
      ++known->cases;
    else
      left_out.push_back({.backend = backend, .why = std::move(why)});
  }
};

/// A row's figures: those of BytesMoved or those of Arithmetic. 0: the row has none, or
/// no time was measured.
struct Figures {
  double bytes = 0, gb_per_s = 0, copy_gb_per_s = 0, of_copy = 0, goal = 0;
  double flops = 0, tflops = 0, goal_tflops = 0, of_goal = 0;
};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

Figures figures_of(const BytesMoved& work, const BenchTime& time) {
  const auto bytes = static_cast<double>(work.least);
  return {.bytes = bytes,
          .gb_per_s = ratio(1e-6 * bytes, time.operation_ms),
          .copy_gb_per_s = ratio(1e-6 * bytes, time.copy_ms),
          .of_copy = ratio(time.copy_ms, time.operation_ms),
          .goal = work.goal};
}

Figures figures_of(const Arithmetic& work, const BenchTime& time) {
  const double tflops = ratio(1e-9 * work.flops, time.operation_ms);
  return {.flops = work.flops,
          .tflops = tflops,
          .goal_tflops = work.goal_tflops,
          .of_goal = ratio(tflops, work.goal_tflops)};
}

Figures figures_of(const BenchRow& row) {
  return std::visit([&](const auto& work) { return figures_of(work, row.time); },
                    row.of.work);
}

/// "attention" of "attention_forward" and "attention_backward".
std::string_view family_of(std::string_view operation) {
  return operation.substr(0, operation.rfind('_'));
}

/// One argument: "NAME" or "NAME:dtype=D".
struct WantedCase {
  std::string name;   // of an operation or a family
  std::string dtype;  // empty: every dtype

  [[nodiscard]] bool has(const BenchCase& of) const {
    return (of.operation == name || family_of(of.operation) == name) &&
           (dtype.empty() || to_string(of.dtype) == dtype);
  }
};

Result<WantedCase> parse_wanted(const std::string& argument,
                                const std::vector<std::string>& known) {
  const request::TemplatePattern pattern =
      KILN_TRY(request::parse_template_pattern(argument));
  const bool is_known = std::ranges::any_of(known, [&](const std::string& each) {
    return each == pattern.name || family_of(each) == pattern.name;
  });
  if (!is_known)
    return refuse("'{}' is not one of the operations {}{}", pattern.name,
                  fmt::join(known, ", "), did_you_mean(pattern.name, known));
  WantedCase wanted{.name = pattern.name, .dtype = {}};
  for (const auto& [parameter, value] : pattern.params) {
    if (parameter != "dtype" || (value != "f16" && value != "bf16" && value != "f32"))
      return refuse("{}: '{}={}' is not dtype=f16, bf16 or f32", argument, parameter,
                    value);
    wanted.dtype = value;
  }
  return wanted;
}

/// The cases that the arguments name, each once; all cases without an argument.
Result<std::vector<BenchCase>> select(const std::vector<std::string>& arguments,
                                      const Device& device) {
  std::vector<BenchCase> cases = bench_cases(device);
  if (arguments.empty())
    return cases;
  std::vector<std::string> known;
  for (const BenchCase& each : cases) {
    if (std::find(known.begin(), known.end(), each.operation) == known.end())
      known.push_back(each.operation);
  }
  std::vector<WantedCase> wanted;
  for (const std::string& argument : arguments)
    wanted.push_back(KILN_TRY(parse_wanted(argument, known)));
  std::erase_if(cases, [&](const BenchCase& each) {
    return std::none_of(wanted.begin(), wanted.end(),
                        [&](const WantedCase& one) { return one.has(each); });
  });
  return cases;
}

Result<Device> choose_device(const Service& service, const std::string& text) {
  constexpr std::uint64_t kMostDevices = 1024;
  const std::uint64_t ordinal =
      KILN_TRY(parse_number("--device", text, {0, kMostDevices}));
  const auto& devices = service.devices();
  if (devices.empty())
    return fail(ErrorCode::kUnavailable,
                "there is no NVIDIA driver with a device here: nothing to measure");
  if (ordinal >= devices.size())
    return refuse("--device {}: there are {}, counted from 0", ordinal, devices.size());
  return devices[ordinal];
}

ordered_json number(double value) {
  return value > 0 ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json whole(double value) {
  return value > 0 ? ordered_json(static_cast<std::uint64_t>(value))
                   : ordered_json(nullptr);
}

ordered_json row_json(const BenchRow& row) {
  const Figures figures = figures_of(row);
  return {{"operation", row.of.operation},
          {"dtype", to_string(row.of.dtype)},
          {"what", row.of.what},
          {"backend", row.of.backend},
          {"bytes", whole(figures.bytes)},
          {"microseconds", number(1e3 * static_cast<double>(row.time.operation_ms))},
          {"gb_per_s", number(figures.gb_per_s)},
          {"copy_gb_per_s", number(figures.copy_gb_per_s)},
          {"of_copy", number(figures.of_copy)},
          {"goal", number(figures.goal)},
          {"flops", whole(figures.flops)},
          {"tflops", number(figures.tflops)},
          {"goal_tflops", number(figures.goal_tflops)},
          {"of_goal", number(figures.of_goal)},
          {"error", row.error ? error_json(*row.error) : ordered_json(nullptr)}};
}

ordered_json report_json(const Device& device, const BenchReport& report) {
  ordered_json entries = ordered_json::array();
  for (const BenchRow& row : report.rows) entries.push_back(row_json(row));
  ordered_json left_out = ordered_json::array();
  for (const LeftOut& each : report.left_out)
    left_out.push_back({{"backend", each.backend},
                        {"cases", each.cases},
                        {"reason", each.why.reason}});
  return {{"device",
           {{"ordinal", device.ordinal},
            {"name", device.name},
            {"capability", to_string(device.capability)},
            {"multiprocessors", device.multiprocessors}}},
          {"entries", entries},
          {"left_out", left_out}};
}

/// The table of one kind of work, with its own headings.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> cells{};

  void print(const Terminal& out) const {
    if (!cells.empty())
      tools::print(format_table(columns, cells, out));
  }
};

void print_report(const Context& context, const Device& device,
                  const BenchReport& report) {
  const auto headed = [](std::vector<Column> more, std::vector<std::string> figures) {
    Table table{.columns = {{"OPERATION"}, {"DTYPE"}, {"ON"}}};
    std::ranges::move(more, std::back_inserter(table.columns));
    for (std::string& each : figures)
      table.columns.push_back({std::move(each), Align::kRight});
    table.columns.push_back({"ERROR"});
    return table;
  };
  Table memory = headed({}, {"µs", "GB/s", "COPY", "OF IT", "GOAL"});
  Table arithmetic = headed({{"BY"}}, {"µs", "TFLOP/s", "GOAL", "OF IT"});
  const auto shown = [](double value, int digits) {
    return value > 0 ? fmt::format("{:.{}f}", value, digits) : std::string("-");
  };
  for (const BenchRow& row : report.rows) {
    const Figures figures = figures_of(row);
    std::vector<std::string> cells{row.of.operation,
                                   std::string(to_string(row.of.dtype)), row.of.what};
    const bool is_of_memory = std::holds_alternative<BytesMoved>(row.of.work);
    if (!is_of_memory)
      cells.push_back(row.of.backend);
    cells.push_back(shown(1e3 * static_cast<double>(row.time.operation_ms), 1));
    if (is_of_memory) {
      for (const double bandwidth : {figures.gb_per_s, figures.copy_gb_per_s})
        cells.push_back(shown(bandwidth, 0));
      for (const double part : {figures.of_copy, figures.goal})
        cells.push_back(shown(part, 2));
    } else {
      for (const double speed : {figures.tflops, figures.goal_tflops})
        cells.push_back(shown(speed, 0));
      cells.push_back(shown(figures.of_goal, 2));
    }
    cells.push_back(row.error ? row.error->message : "");
    (is_of_memory ? memory : arithmetic).cells.push_back(std::move(cells));
  }
  print(fmt::format("device {} ({}, {})\n", device.ordinal, device.name,
                    to_string(device.capability)));
  memory.print(context.out);
  arithmetic.print(context.out);
  for (const LeftOut& each : report.left_out)
    print(fmt::format("left out: {} {} by {}: {}\n", each.cases,
                      each.cases == 1 ? "case" : "cases", each.backend,
                      each.why.reason));
}

/// Adds a row to `report`, or the reason why there is none.
void measure(Bench& bench, BenchCase which, int rounds, BenchReport& report) {
  BenchRow row{.of = std::move(which), .time = {}, .error = {}};
  const auto refusal = bench.prepare(row.of);
  if (refusal && *refusal) {
    report.leave_out(row.of.backend, **refusal);
    return;
  }
  if (!refusal)
    row.error = refusal.error();
  else if (const auto time = bench.measure(row.of, rounds))
    row.time = *time;
  else
    row.error = time.error();
  report.rows.push_back(std::move(row));
}

/// Measures the cases until all are done or a stop is requested.
BenchReport measure_all(const Context& context, Bench& bench,
                        const std::vector<BenchCase>& cases, int rounds) {
  Progress progress(context.err, cases.size());
  BenchReport report;
  const auto began = std::chrono::steady_clock::now();
  int done = 0;
  for (const BenchCase& each : cases) {
    if (context.stop->exit_code())
      break;
    const std::string label =
        fmt::format("{}:dtype={}", each.operation, to_string(each.dtype));
    progress.start(label);
    measure(bench, each, rounds, report);
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - began;
    ++done;
    const double left =
        took.count() / done * (static_cast<double>(cases.size()) - done);
    progress.finish(label, std::chrono::milliseconds(std::llround(left)));
  }
  return report;
}

Result<int> run(Context& context, const BenchOptions& options) {
  constexpr std::uint64_t kMostRounds = 100000;
  KILN_TRY(select(options.names, Device{}));  // rejects a wrong name without a device
  const auto rounds = static_cast<int>(
      KILN_TRY(parse_number("--rounds", options.rounds, {1, kMostRounds})));
  kiln::Options settings;
  settings.cache_dir = context.config.cache_dir;
  settings.seeds = context.config.seeds;
  settings.remote = context.config.remote.servers;
  settings.remote_mode = context.config.remote.mode;
  settings.remote_keys = context.config.keys;
  settings.remote_auth = context.config.remote.auth;
  settings.attention =
      AttentionSetting::kCudnn;  // for the cuDNN cases; Kiln's cases do not ask cuDNN
  Service service = KILN_TRY(Service::open(settings));
  const Device device = KILN_TRY(choose_device(service, options.device));
  const auto cases = KILN_TRY(select(options.names, device));
  const auto driver = KILN_TRY(device::Driver::open(context.config.driver.value_or(""),
                                                    LibraryPlaces::of_process()));
  if (!driver)
    return fail(ErrorCode::kUnavailable, "the driver that was here is gone");
  const auto bench = KILN_TRY(Bench::open(service, *driver, device));
  const BenchReport report = measure_all(context, *bench, cases, rounds);
  if (context.json)
    print_json(report_json(device, report));
  else
    print_report(context, device, report);
  if (const auto stopped = context.stop->exit_code())
    return *stopped;
  const bool failed = std::ranges::any_of(
      report.rows, [](const BenchRow& row) { return row.error.has_value(); });
  return failed ? kSomeFailed : kAllDone;
}

}  // namespace

Run add_bench(OptionSet& cli) {
  auto options = std::make_shared<BenchOptions>();
  cli.argument("NAME", options->names,
               "An operation, NAME or NAME:dtype=D; `attention` is both of its passes "
               "(default: all operations)");
  cli.option("--device", options->device, "N",
             "The device, counted from 0 (default: 0)");
  cli.option("--rounds", options->rounds, "N",
             "Runs of each operation; their median counts (default: 20)");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
