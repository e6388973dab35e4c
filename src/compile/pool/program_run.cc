#include "compile/pool/program_run.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "util/try.h"

namespace kiln::compile {
namespace {

/// Of the worker, to end what it watches over.
constexpr std::chrono::seconds kGrace{2};
constexpr std::chrono::hours kLongestLimit{24 * 365};

}  // namespace

Result<ProgramEnd> run_to_its_end(const ProgramRun& run, const ExchangeLimits& limits) {
  if (run.command.empty() || run.command.front().empty())
    return refuse("a program to run has no name");
  const std::string& name = run.command.front();
  const auto limit = std::clamp<std::chrono::nanoseconds>(
      limits.deadline - std::chrono::steady_clock::now(), {}, kLongestLimit);
  ChildCommand command{
      .path = run.worker,
      .environment = run.environment,
      .name = "worker that runs a program",
      .arguments = {std::string(kRunArgument),
                    std::to_string(limit / std::chrono::milliseconds(1)),
                    run.folder.native(), run.output.native()}};
  command.arguments.insert(command.arguments.end(), run.command.begin(),
                           run.command.end());
  ChildProcess child = KILN_TRY(ChildProcess::start(command));
  ExchangeLimits waits = limits;
  waits.deadline = std::chrono::steady_clock::now() + limit + kGrace;
  auto frame = child.receive_frame(waits);
  // Whatever it was, the worker ends the program, with what has left its group, too.
  if (child.socket() >= 0)
    ::shutdown(child.socket(), SHUT_RDWR);
  for (const auto until = std::chrono::steady_clock::now() + kGrace;
       child.alive() && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  child.kill();
  if (!frame) {
    Error error = std::move(frame).error();
    error.message = error.code == ErrorCode::kTimeout
                        ? fmt::format(
                              "{} took longer than its limit, and was killed with all "
                              "processes that it had started",
                              name)
                        : fmt::format("{}: {}", name, error.message);
    return tl::unexpected(std::move(error));
  }
  const ProgramEnd end = KILN_TRY(decode_program_end(*frame));
  if (end.error != 0)
    return fail(ErrorCode::kUnavailable, "cannot start {} in {}: {}", name,
                run.folder.native(), std::generic_category().message(end.error));
  return end;
}

}  // namespace kiln::compile
