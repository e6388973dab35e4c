// Prints what docs/fleet.md shows: one JSON object a line, a scenario each.
// tests/simulation/plot.py makes the table and the picture of it.

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/simulation/fleet.h"

namespace kiln::simulation {
namespace {

using namespace std::chrono_literals;

void print(const std::string& name, const Parameters& parameters) {
  const Outcome outcome = run(parameters);
  const nlohmann::ordered_json line = {{"name", name},
                                       {"foreseen_s", foreseen_s(parameters)},
                                       {"last_rank_s", outcome.last_rank_s},
                                       {"worst_rank_s", outcome.worst_rank_s},
                                       {"first_kernel_s", outcome.first_kernel_s},
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

}  // namespace
}  // namespace kiln::simulation

int main() {
  kiln::simulation::print_all();
}
