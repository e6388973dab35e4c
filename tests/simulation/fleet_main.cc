// Prints what docs/fleet.md shows: one JSON object a line, a scenario each.
// tests/simulation/plot.py makes the table and the picture of it. With arguments,
// "way=pack nodes=8", only that fleet: tests/simulation/calibrate.py compares it with a
// real one.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/simulation/fleet.h"

namespace kiln::simulation {
namespace {

using namespace std::chrono_literals;

void print(const std::string& name, const Parameters& parameters) {
  const Outcome outcome = run(parameters);
  const nlohmann::ordered_json line = {
      {"name", name},
      {"foreseen_s", foreseen_s(parameters)},
      {"last_rank_s", outcome.last_rank_s},
      {"worst_rank_s", outcome.worst_rank_s},
      {"first_kernel_s", outcome.first_kernel_s},
      {"foreseen_first_kernel_s", foreseen_first_kernel_s(parameters)},
      {"builds", outcome.builds},
      {"wasted", outcome.wasted},
      {"requests", outcome.requests},
      {"connections", outcome.connections}};
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

Parameters warm(Way way) {
  Parameters parameters;
  parameters.way = way;
  return parameters;
}
Parameters cold(Way way) {
  Parameters parameters = warm(way);
  parameters.is_warm = false;
  return parameters;
}

void print_all() {
  print("naive: every node builds", cold(Way::kNaive));
  print("shared file system, cold", cold(Way::kSharedFiles));
  print("shared file system, warm", warm(Way::kSharedFiles));
  print("remote by object, cold", cold(Way::kObjects));
  Parameters pushing = cold(Way::kObjects);
  pushing.pushes = true;
  print("remote by object, cold, every node pushes", pushing);
  print("remote by object, warm", warm(Way::kObjects));
  print("pack from one server", warm(Way::kPack));
  print("pack by sbcast", warm(Way::kBroadcast));
  print("shards, then a pack", cold(Way::kShardsPack));

  Parameters skewed = warm(Way::kObjects);
  skewed.skew = 60s;
  print("remote by object, warm, starts within 60 s", skewed);
  Parameters slow = warm(Way::kObjects);
  slow.server.slow_share = 0.01;
  print("remote by object, warm, 1 % of answers 5 s late", slow);
  Parameters dead = warm(Way::kObjects);
  dead.server.death = Death::kSilent;
  print("remote by object, dead from the start", dead);
  dead.server.death = Death::kRefusing;
  print("remote by object, refuses from the start", dead);
  dead.server.death = Death::kSilent;
  dead.server.dies_after = 12s;
  print("remote by object, dies at half", dead);
  Parameters shards = cold(Way::kShardsPack);
  shards.dead_shards = 0.5;
  print("shards, then a pack; half of the shards die", shards);
  shards.poll = 5s;
  print("the same, with --wait 5", shards);
  shards = cold(Way::kShardsPack);
  shards.server.death = Death::kSilent;
  print("shards, then a pack; the server is dead", shards);
  Parameters one = warm(Way::kPack);
  one.nodes = 1;
  one.ranks = 1;
  print("one rank alone, pack from one server", one);
}

/// Each parameter that can be given, as a number in its own unit; times are seconds.
const std::map<std::string, std::function<void(Parameters&, double)>, std::less<>>&
setters() {
  static const auto& table =
      *new std::map<std::string, std::function<void(Parameters&, double)>, std::less<>>{
          {"nodes", [](auto& p, double v) { p.nodes = static_cast<std::uint32_t>(v); }},
          {"ranks", [](auto& p, double v) { p.ranks = static_cast<std::uint32_t>(v); }},
          {"jobs", [](auto& p, double v) { p.jobs = static_cast<std::uint32_t>(v); }},
          {"kernels",
           [](auto& p, double v) { p.kernels = static_cast<std::uint32_t>(v); }},
          {"object_bytes",
           [](auto& p, double v) { p.object_bytes = static_cast<std::uint64_t>(v); }},
          {"compression", [](auto& p, double v) { p.compression = v; }},
          {"build_s", [](auto& p, double v) { p.build = seconds(v); }},
          {"wait_s", [](auto& p, double v) { p.wait = seconds(v); }},
          {"hit_s", [](auto& p, double v) { p.hit = seconds(v); }},
          {"requests_per_second",
           [](auto& p, double v) { p.server.requests_per_second = v; }},
          {"bytes_per_second",
           [](auto& p, double v) { p.server.bytes_per_second = v; }},
      };
  return table;
}

/// False: a word is none of "way=objects", "way=pack" and a parameter's.
bool print_one(int count, const char* const* words) {
  Parameters parameters = warm(Way::kObjects);
  for (int i = 0; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t equals = std::min(word.find('='), word.size() - 1);
    const std::string value = word.substr(equals + 1);
    if (word == "way=objects" || word == "way=pack") {
      parameters.way = value == "pack" ? Way::kPack : Way::kObjects;
      continue;
    }
    const auto found = setters().find(word.substr(0, equals));
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (found == setters().end() || value.empty() || *end != '\0') {
      std::fprintf(stderr, "no parameter with a number: %s\n", word.c_str());
      return false;
    }
    found->second(parameters, number);
  }
  print("given", parameters);
  return true;
}

}  // namespace
}  // namespace kiln::simulation

int main(int argc, char** argv) {
  if (argc > 1)
    return kiln::simulation::print_one(argc - 1, argv + 1) ? 0 : 2;
  kiln::simulation::print_all();
}
