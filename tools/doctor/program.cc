// What `kiln run` would catch of a program: runs it beneath the stand-ins for NVRTC,
// and reads what they tell.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "tools/audit_modules.h"
#include "tools/doctor/doctor.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/unique_handle.h"

namespace kiln::tools {
namespace {

constexpr const char* kName = "program";
constexpr std::uint64_t kMostTold = 16ULL << 20U;

struct RemovedFile {
  using Raw = std::string;
  static Raw null() { return {}; }
  static void close(const Raw& path) noexcept { ::unlink(path.c_str()); }
};
using TraceFile = UniqueHandle<RemovedFile>;

Result<TraceFile> make_trace_file() {
  std::string path = "/tmp/kiln-doctor-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0)
    return posix_error("create", path, errno);
  ::close(fd);
  return TraceFile(std::move(path));
}

/// Its output goes to stderr. The result is what waitpid() says.
Result<int> run_program(const std::vector<std::string>& command,
                        const std::string& modules, const std::string& trace) {
  constexpr int kNoProgram = 127;  // as a shell's
  const pid_t child = ::fork();
  if (child < 0)
    return posix_error("fork", command.front(), errno);
  if (child == 0) {
    // NOLINTBEGIN(concurrency-mt-unsafe): the child has one thread
    ::setenv(kAuditVariable, modules.c_str(), 1);
    ::setenv("KILN_NVRTC_STANDIN", ("trace:" + trace).c_str(), 1);
    // NOLINTEND(concurrency-mt-unsafe)
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    std::ignore = execute(command);
    ::_exit(kNoProgram);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      return posix_error("wait for", command.front(), errno);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoProgram)
    return fail(ErrorCode::kNotFound, "{} cannot be run, or ended with {}",
                command.front(), kNoProgram);
  return status;
}

/// A line of the trace, without its "kiln: ".
Check check_of(const std::string& line) {
  const bool is_caught = !line.starts_with("no stand-in");
  return {kName, is_caught ? CheckVerdict::kOk : CheckVerdict::kWarn, line,
          is_caught ? "" : "the program calls this NVRTC as without Kiln"};
}

Result<std::vector<Check>> checks_of(const std::vector<std::string>& command) {
  const std::string modules = KILN_TRY(audit_modules());
  const auto file = KILN_TRY(make_trace_file());
  const int status = KILN_TRY(run_program(command, modules, file.get()));
  const auto told = KILN_TRY(read_file(file.get(), kMostTold));
  std::vector<Check> checks;
  std::istringstream lines(told ? std::string(as_text(*told)) : "");
  for (std::string line; std::getline(lines, line);)
    checks.push_back(check_of(
        line.substr(std::min(line.size(), std::string_view("kiln: ").size()))));
  if (checks.empty())
    checks.push_back(
        {kName, CheckVerdict::kWarn, fmt::format("{} loaded no NVRTC", command.front()),
         "it has no NVRTC, or a static NVRTC, is set-uid, or clears LD_AUDIT"});
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    checks.push_back(
        {kName, CheckVerdict::kWarn,
         WIFEXITED(status)
             ? fmt::format("{} ended with {}", command.front(), WEXITSTATUS(status))
             : fmt::format("{} was ended by signal {}", command.front(),
                           WTERMSIG(status)),
         "the checks of its NVRTCs are above"});
  return checks;
}

}  // namespace

void check_program(const std::vector<std::string>& command, Diagnosis& diagnosis) {
  auto checks = checks_of(command);
  if (!checks)
    return diagnosis.add({kName, CheckVerdict::kFail, checks.error().message, ""});
  for (Check& check : *checks) diagnosis.add(std::move(check));
}

}  // namespace kiln::tools
