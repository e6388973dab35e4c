#include "build/dead_mounts.h"

#include <set>
#include <utility>

#include "compile/pool/mount_probe.h"
#include "compile/pool/worker_path.h"
#include "util/far_mount.h"
#include "util/library_search.h"
#include "util/log.h"
#include "util/try.h"

namespace kiln {

cache::AskMount ask_mount(const Config& config) {
  return [worker = config.worker, by = config.worker_by.name](
             const std::filesystem::path& place, const FarMount& mount,
             std::chrono::milliseconds limit) {
    const auto found =
        compile::find_worker({.path = worker.value_or(""), .set_by = by});
    if (!found)
      log(LogLevel::kDebug, {"mounts are not probed: ", found.error().message});
    return !found || compile::mount_answers(*found, mount.place, place, limit);
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
