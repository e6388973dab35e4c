#include "tests/bench/scratch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "util/posix_error.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::bench {
namespace {

Result<pid_t> start(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));  // the call changes none
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (output >= 0)
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = 0;
  const int err = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (err != 0)
    return posix_error("start", arguments[0], err);
  return pid;
}

Result<void> wait(pid_t pid, const std::vector<std::string>& arguments) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR)
      return posix_error("wait for", arguments[0], errno);
  }
  if (status == 0)
    return {};
  return fail(ErrorCode::kUnavailable,
              fmt::format("{} {} ended with status {:#x}", arguments[0],
                          arguments.size() > 1 ? arguments[1] : "", status));
}

Result<std::string> read_all(int fd) {
  std::string text;
  std::array<char, 4096> block{};
  for (;;) {
    const ssize_t n = ::read(fd, block.data(), block.size());
    if (n == 0)
      return text;
    if (n < 0 && errno != EINTR)
      return posix_error("read", "a pipe", errno);
    if (n > 0)
      text.append(block.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace

Result<std::shared_ptr<const ScratchFolder>> ScratchFolder::make(
    const std::filesystem::path& below) {
  std::string name = (below / "kiln-bench-XXXXXX").native();
  if (::mkdtemp(name.data()) == nullptr)
    return posix_error("mkdtemp", name, errno);
  return std::shared_ptr<const ScratchFolder>(new ScratchFolder(name));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // what cannot be removed stays in a temporary folder
  std::filesystem::remove_all(path_, ignored);
}

Result<ProcessRun> run_process(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return posix_error("pipe", arguments[0], errno);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  ProcessRun run;
  run.wall = KILN_TRY(timed([&]() -> Result<void> {
    const pid_t pid = KILN_TRY(start(arguments, theirs.get()));
    theirs = UniqueFd();
    auto text = read_all(ours.get());
    KILN_TRY(wait(pid, arguments));
    run.output = KILN_TRY(std::move(text));
    return {};
  }));
  return run;
}

Result<Seconds> wall(const std::vector<std::string>& arguments) {
  return KILN_TRY(run_process(arguments)).wall;
}

Result<Seconds> printed_seconds(const std::vector<std::string>& command) {
  return Seconds(std::stod(KILN_TRY(run_process(command)).output));
}

Result<Seconds> run_processes(const std::vector<std::vector<std::string>>& processes) {
  return timed([&]() -> Result<void> {
    std::vector<Result<pid_t>> started;
    for (const auto& arguments : processes) started.push_back(start(arguments, -1));
    Result<void> all;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const Result<void> ended = started[i] ? wait(*started[i], processes[i])
                                            : tl::unexpected(started[i].error());
      if (!ended)
        all = ended;
    }
    return all;
  });
}

std::filesystem::path this_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::filesystem::path program_beside(const std::string& name) {
  return this_program().parent_path() / name;
}

std::vector<std::string> child_command(std::string_view name,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command{this_program(), "--child", std::string(name)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace kiln::bench
