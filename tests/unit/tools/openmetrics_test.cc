// The text of `stats --format openmetrics`, held against the grammar of OpenMetrics 1.0
// as far as counters and gauges need it.

#include "tools/output/openmetrics.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/test.h"

namespace kiln::tools {
namespace {

cache::Stats some_stats() {
  cache::Stats stats;
  stats.totals.entries = 12;
  stats.totals.bytes = 345678;
  stats.limit_bytes = 10ULL << 30U;
  stats.counters = {{"compiled", 12},    {"corrupt.checksum", 1},
                    {"corrupt.size", 2}, {"hits", 18446744073709551615ULL},
                    {"misses", 12},      {"publish_refused.ENOSPC", 3}};
  return stats;
}

std::string text_of(const cache::Stats& stats, bool is_there = true) {
  return metrics_text(stats, "/c", is_there, MetricsFormat::kOpenMetrics);
}

/// The sample without its label `cache`, which is the first of each.
std::string without_cache(const std::string& labels) {
  const std::string label = "{cache=\"/c\"";
  EXPECT_TRUE(labels.starts_with(label)) << labels;
  const std::string rest = labels.substr(label.size());
  return rest == "}" ? "" : "{" + rest.substr(1);
}

/// Each sample with its value; a failure for every line that the grammar does not have.
std::map<std::string, std::string> samples_of(const std::string& text) {
  static const std::regex meta(
      "# (TYPE [a-zA-Z_:][a-zA-Z0-9_:]* (counter|gauge|histogram)|UNIT "
      "([a-zA-Z_:][a-zA-Z0-9_:]*) "
      "([a-z]+)|HELP [a-zA-Z_:][a-zA-Z0-9_:]* [^\"\\\\]*)");
  static const std::regex sample(
      "([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"\\\\]*\""
      "(?:,[a-zA-Z_][a-zA-Z0-9_]*=\"[^\"\\\\]*\")*\\})? ([0-9.]+)");
  std::map<std::string, std::string> samples;
  std::set<std::string> families;
  std::string family;
  std::string helped;
  std::string type;
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  std::istringstream lines(text.substr(0, text.rfind("# EOF\n")));
  for (std::string line; std::getline(lines, line);) {
    std::smatch part;
    if (std::regex_match(line, part, meta)) {
      std::istringstream words(line.substr(2));
      std::string kind;
      std::string name;
      words >> kind >> name;
      if (kind == "HELP") {
        helped = name;
        continue;
      }
      if (kind == "TYPE") {
        EXPECT_EQ(name, helped) << "a collector would make a text of its own up";
        EXPECT_TRUE(families.insert(name).second) << "two families " << name;
        family = name;
        words >> type;
      }
      EXPECT_EQ(name, family) << line;
      if (kind == "UNIT") {
        EXPECT_TRUE(name.ends_with("_" + part[4].str())) << line;
      }
      continue;
    }
    EXPECT_TRUE(std::regex_match(line, part, sample)) << line;
    if (type == "histogram")
      EXPECT_TRUE(part[1] == family + "_bucket" || part[1] == family + "_count" ||
                  part[1] == family + "_sum")
          << line;
    else
      EXPECT_EQ(part[1], type == "counter" ? family + "_total" : family) << line;
    EXPECT_TRUE(samples.emplace(part[1].str() + without_cache(part[2]), part[3]).second)
        << "twice: " << line;
  }
  return samples;
}

TEST(OpenMetrics, HasEveryCountOnceInTheGrammar) {
  const auto samples = samples_of(text_of(some_stats()));
  EXPECT_EQ(samples, (std::map<std::string, std::string>{
                         {"kiln_cache_present", "1"},
                         {"kiln_entries", "12"},
                         {"kiln_size_bytes", "345678"},
                         {"kiln_limit_bytes", "10737418240"},
                         {"kiln_gets_total{tier=\"disk\"}", "18446744073709551615"},
                         {"kiln_gets_total{tier=\"build\"}", "12"},
                         {"kiln_misses_total", "12"},
                         {"kiln_corrupt_total{check=\"checksum\"}", "1"},
                         {"kiln_corrupt_total{check=\"size\"}", "2"},
                         {"kiln_publish_refused_total{errno=\"ENOSPC\"}", "3"}}));
}

TEST(OpenMetrics, EveryCounterThereIsFitsTheGrammar) {
  cache::Stats stats;
  for (std::size_t i = 0; i < cache::kCounterCount; ++i)
    stats.counters[std::string(to_string(static_cast<cache::Counter>(i)))] = i;
  EXPECT_EQ(samples_of(text_of(stats)).size(), cache::kCounterCount + 4);
}

TEST(OpenMetrics, AHitIsCountedInOneTier) {
  cache::Stats stats;
  stats.counters = {{"hits", 10}, {"seed_hits", 4}};
  const auto samples = samples_of(text_of(stats));
  EXPECT_EQ(samples.at("kiln_gets_total{tier=\"disk\"}"), "6");
  EXPECT_EQ(samples.at("kiln_gets_total{tier=\"seed\"}"), "4");
  // The counter file may be torn between the two.
  stats.counters["seed_hits"] = 11;
  EXPECT_EQ(samples_of(text_of(stats)).at("kiln_gets_total{tier=\"disk\"}"), "0");
}

TEST(OpenMetrics, WhatRemotesWereAskedIsCountedByServerMethodAndResult) {
  cache::Stats stats;
  stats.counters = {{"hits", 10},
                    {"remote_hits", 3},
                    {"seed_hits", 2},
                    {"remote_breaker_open.c.example.com:8080", 1},
                    {"remote_bytes.received", 1000},
                    {"remote_bytes.sent", 20},
                    {"remote_microseconds", 1'250'003},
                    {"remote_rejected.signature", 1},
                    {"remote_requests.get.hit.c.example.com:8080", 3},
                    {"remote_requests.get.overtaken.[::1]:80", 4},
                    {"remote_seconds.0.025", 5},
                    {"remote_seconds.1", 1},
                    {"remote_seconds.inf", 1},
                    {"uploads_dropped", 6}};
  auto samples = samples_of(text_of(stats));
  std::erase_if(samples, [](const auto& sample) {
    return sample.first.starts_with("kiln_remote_seconds_bucket");
  });
  for (const char* gauge :
       {"kiln_cache_present", "kiln_entries", "kiln_size_bytes", "kiln_limit_bytes"})
    samples.erase(gauge);
  EXPECT_EQ(samples,
            (std::map<std::string, std::string>{
                {"kiln_gets_total{tier=\"disk\"}", "5"},
                {"kiln_gets_total{tier=\"remote\"}", "3"},
                {"kiln_gets_total{tier=\"seed\"}", "2"},
                {"kiln_remote_breaker_open_total{server=\"c.example.com:8080\"}", "1"},
                {"kiln_remote_bytes_total{direction=\"received\"}", "1000"},
                {"kiln_remote_bytes_total{direction=\"sent\"}", "20"},
                {"kiln_remote_rejected_total{check=\"signature\"}", "1"},
                {"kiln_remote_requests_total{method=\"get\",result=\"hit\","
                 "server=\"c.example.com:8080\"}",
                 "3"},
                {"kiln_remote_requests_total{method=\"get\",result=\"overtaken\","
                 "server=\"[::1]:80\"}",
                 "4"},
                {"kiln_remote_seconds_count", "7"},
                {"kiln_remote_seconds_sum", "1.250003"},
                {"kiln_uploads_dropped_total", "6"}}));
}

TEST(OpenMetrics, AHistogramsBucketsAddUp) {
  cache::Stats stats;
  stats.counters = {
      {"remote_seconds.0.025", 5}, {"remote_seconds.1", 1}, {"remote_seconds.inf", 1}};
  const auto samples = samples_of(text_of(stats));
  const auto bucket = [&](const char* bound) {
    return samples.at("kiln_remote_seconds_bucket{le=\"" + std::string(bound) + "\"}");
  };
  EXPECT_EQ(bucket("0.01"), "0");
  EXPECT_EQ(bucket("0.025"), "5");
  EXPECT_EQ(bucket("0.5"), "5");
  EXPECT_EQ(bucket("1"), "6");
  EXPECT_EQ(bucket("10"), "6");
  EXPECT_EQ(bucket("+Inf"), "7");
}

TEST(OpenMetrics, ACacheWithoutCountsIsWhole) {
  EXPECT_EQ(samples_of(text_of({}, false)).at("kiln_cache_present"), "0");
  EXPECT_EQ(samples_of(text_of({}, false)).size(), 4U);
}

TEST(OpenMetrics, HasNoTypeThatTheOlderFormatLacks) {
  // node_exporter's textfile collector drops a whole file with a type that it does not
  // know.
  for (const char* type : {" info\n", " stateset\n", " unknown\n", " gaugehistogram\n"})
    EXPECT_THAT(text_of(some_stats()), Not(HasSubstr(type)));
}

}  // namespace
}  // namespace kiln::tools
