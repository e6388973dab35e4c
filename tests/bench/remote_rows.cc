// A job beside a remote cache that is dead: it takes connections and never answers.

#include <fmt/format.h>

#include <memory>

#include "tests/bench/costs_children.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "tests/support/fault_server.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

constexpr std::size_t kProcesses = 8;

/// Processes of one node that want the same kernels, in the same order.
Result<Seconds> run_job(const Settings& settings, const std::string& remote) {
  const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  const std::vector<std::string> process = child_command(
      kJobChild,
      {scratch->path() / "cache", std::to_string(settings.job_kernels), remote});
  return run_processes(std::vector<std::vector<std::string>>(kProcesses, process));
}

Row dead_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto server =
        std::make_shared<test::FaultServer>([](const test::Exchange& exchange) {
          exchange.wait_for_its_end();
          return false;
        });
    const std::string remote = server->url("/kiln;unsigned=1");
    return Sides{.measured = [=, kept = server] { return run_job(settings, remote); },
                 .floor = [=] { return run_job(settings, "none"); }};
  };
  return {.name = "remote/dead",
          .what = fmt::format("{} processes build {} kernels beside a dead remote",
                              kProcesses, settings.job_kernels),
          .floor = "the same without a remote",
          .limit = {1, Seconds(1)},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> remote_rows(const Settings& settings) {
  return {dead_row(settings)};
}

}  // namespace kiln::bench
