#include "build/dead_mounts.h"

#include <poll.h>

#include <cerrno>
#include <set>
#include <utility>

#include "compile/pool/worker_path.h"
#include "compile/protocol/protocol.h"
#include "process/child_process.h"
#include "util/far_mount.h"
#include "util/library_search.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

/// The child's end of the socket closes when it ends, so it needs to say nothing.
bool ends_before(int socket, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd end{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready =
        ::poll(&end, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
    if (ready >= 0 || errno != EINTR)
      return ready > 0;
  }
}

/// Starts `worker` to look at `place` on `mount`: a process can be given up, and a
/// thread that hangs in a dead mount may keep its process from ending. False if it has
/// not come back after `limit`; true also where it cannot be started, since then
/// nothing is known.
bool mount_answers(const std::filesystem::path& worker,
                   const std::filesystem::path& mount,
                   const std::filesystem::path& place,
                   std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  // Without LD_LIBRARY_PATH: the loader would hang in a dead folder there.
  auto child = ChildProcess::start({.path = worker,
                                    .name = "probe of a mount",
                                    .arguments = {std::string(compile::kProbeArgument),
                                                  mount.native(), place.native()}});
  if (!child) {
    log(LogLevel::kDebug, {child.error().message});
    return true;
  }
  const bool answers = ends_before(child->socket(), deadline);
  child->leave();
  return answers;
}

}  // namespace

cache::AskMount ask_mount(const Config& config) {
  return [worker = config.worker, by = config.worker_by.name](
             const std::filesystem::path& place, const FarMount& mount,
             std::chrono::milliseconds limit) {
    const auto found =
        compile::find_worker({.path = worker.value_or(""), .set_by = by});
    if (!found)
      log(LogLevel::kDebug, {"mounts are not probed: ", found.error().message});
    return !found || mount_answers(*found, mount.place, place, limit);
  };
}

Result<void> check_mount(const Config& config, std::string_view setting,
                         const std::filesystem::path& place) {
  const auto far = place.empty() ? std::nullopt : far_mount_of(place);
  if (!far || ask_mount(config)(place, *far, kMountWait))
    return {};
  return fail(ErrorCode::kUnavailable, "{}: {}", setting, cache::silence(place, *far));
}

Result<void> check_mounts(const Config& config) {
  for (const std::filesystem::path& folder : config.template_dirs)
    KILN_TRY(check_mount(config, "KILN_TEMPLATE_DIR", folder));
  KILN_TRY(check_mount(config, "KILN_REMOTE_KEYS", config.keys));
  return check_mount(config, "KILN_REMOTE_AUTH", config.remote.auth);
}

std::vector<std::string> dead_search_places(const Config& config) {
  const LibraryPlaces places = LibraryPlaces::of_process();
  std::vector<std::pair<std::string, std::filesystem::path>> all{
      {"CUDA_HOME", places.cuda_home},
      {"KILN_NVRTC", config.nvrtc.value_or("")},
      {"KILN_CUDNN", config.cudnn.value_or("")},
      {"KILN_DRIVER", config.driver.value_or("")},
      {"/usr/local", places.toolkits}};
  for (const auto& folder : places.loader_path)
    all.emplace_back("LD_LIBRARY_PATH", folder);
  for (const auto& folder : places.python_environments)
    all.emplace_back("VIRTUAL_ENV or CONDA_PREFIX", folder);
  std::vector<std::string> dead;
  std::set<std::filesystem::path> asked;  // each mount once
  for (const auto& [setting, place] : all) {
    const auto far = place.empty() ? std::nullopt : far_mount_of(place);
    if (!far || !asked.insert(far->place).second)
      continue;
    if (const auto checked = check_mount(config, setting, place); !checked)
      dead.push_back(checked.error().message);
  }
  return dead;
}

}  // namespace kiln
