// A folder that exists as long as the object does, and other processes run in it.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "tests/bench/comparison.h"

namespace kiln::bench {

/// Thread safety: immutable.
class ScratchFolder {
 public:
  /// Errors: kIo.
  [[nodiscard]] static Result<std::shared_ptr<const ScratchFolder>> make(
      const std::filesystem::path& below);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path path_;
};

struct ProcessRun {
  Seconds wall{0};     // from before its start until it was reaped
  std::string output;  // its stdout
};

/// Runs `arguments`, the program first; its stderr is ours. Errors: kIo; kUnavailable
/// for a status other than 0.
[[nodiscard]] Result<ProcessRun> run_process(const std::vector<std::string>& arguments);

/// Runs it, and gives the time that it took. Errors: as run_process().
[[nodiscard]] Result<Seconds> wall(const std::vector<std::string>& arguments);

/// Runs it, and gives the seconds that it prints. Errors: as run_process().
[[nodiscard]] Result<Seconds> printed_seconds(const std::vector<std::string>& command);

/// Starts all of them, and waits for all. Errors: as run_process().
[[nodiscard]] Result<Seconds> run_processes(
    const std::vector<std::vector<std::string>>& processes);

/// This very program, and others beside it.
[[nodiscard]] std::filesystem::path this_program();
[[nodiscard]] std::filesystem::path program_beside(const std::string& name);

/// The command line with which this program does do_child().
[[nodiscard]] std::vector<std::string> child_command(
    std::string_view name, const std::vector<std::string>& arguments);

}  // namespace kiln::bench
