#include "compile/pool/program_run.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "util/try.h"

namespace kiln::compile {

Result<ProgramEnd> run_to_its_end(const ProgramRun& run, const ExchangeLimits& limits) {
  if (run.command.empty() || run.command.front().empty())
    return fail(ErrorCode::kInvalidArgument, "a program to run has no name");
  const std::string& name = run.command.front();
  ChildCommand command{.path = run.worker,
                       .environment = run.environment,
                       .name = "worker that runs a program",
                       .arguments = {std::string(kRunArgument), run.folder.native(),
                                     run.output.native()}};
  command.arguments.insert(command.arguments.end(), run.command.begin(),
                           run.command.end());
  ChildProcess child = KILN_TRY(ChildProcess::start(command));
  auto frame = child.receive_frame(limits);
  child.kill();
  if (!frame) {
    Error error = std::move(frame).error();
    error.message =
        error.code == ErrorCode::kTimeout
            ? fmt::format(
                  "{} took longer than its limit, and was killed with all that "
                  "it had started",
                  name)
            : fmt::format("{}: {}", name, error.message);
    return tl::unexpected(std::move(error));
  }
  const ProgramEnd end = KILN_TRY(decode_program_end(*frame));
  if (end.error != 0)
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot start {} in {}: {}", name, run.folder.native(),
                            std::generic_category().message(end.error)));
  return end;
}

}  // namespace kiln::compile
