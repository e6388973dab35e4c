#include "tests/bench/report.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "compile/pool/cores.h"

namespace kiln::bench {
namespace {

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

}  // namespace

std::string table_head() {
  return fmt::format(kColumns, "what", "measured", "floor", "ratio", "at most", "noise",
                     "verdict");
}

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

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json row = {{"name", finding.name},
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

double load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace kiln::bench
