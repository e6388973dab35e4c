// What `kiln run` would catch of a program: runs it beneath the stand-ins for NVRTC,
// and reads what they tell.

#include <fmt/format.h>
#include <sys/stat.h>
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

namespace kiln::tools {
namespace {

constexpr const char* kName = "program";
constexpr std::uint64_t kMostTold = 16ULL << 20U;

/// Removed with it.
class TraceFile {
 public:
  static Result<TraceFile> make() {
    TraceFile file;
    const int fd = ::mkstemp(file.path_.data());
    if (fd < 0)
      return posix_error("create", file.path_, errno);
    ::close(fd);
    return file;
  }
  TraceFile(TraceFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TraceFile& operator=(TraceFile&&) = delete;
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() {
    if (!path_.empty())
      ::unlink(path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  TraceFile() = default;
  std::string path_ = "/tmp/kiln-doctor-XXXXXX";
};

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
  const auto file = KILN_TRY(TraceFile::make());
  const int status = KILN_TRY(run_program(command, modules, file.path()));
  const auto told = KILN_TRY(read_file(file.path(), kMostTold));
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
