// Says what the environment sets, one line a setting. Set-uid, it must not matter who
// started it with what.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "build/settings.h"
#include "compile/pool/worker_pool.h"
#include "remote/client/credentials.h"
#include "util/library_search.h"

namespace kiln {
namespace {

std::string text(const std::optional<std::filesystem::path>& path) {
  return path ? path->native() : "";
}

std::vector<std::string> texts(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> list;
  for (const auto& path : paths) list.push_back(path.native());
  return list;
}

void print(const char* setting, const std::string& value) {
  fmt::print("{}={}\n", setting, value);
}

int probe() {
  const auto config = settings({}, process_environment());
  if (!config) {
    fmt::print(stderr, "{}\n", config.error().message);
    return 1;
  }
  print("secure", ::getauxval(AT_SECURE) != 0 ? "yes" : "no");
  print("KILN_CACHE_DIR", config->cache_dir.native());
  print("XDG_RUNTIME_DIR", config->runtime_dir.native());
  print("KILN_CACHE_SIZE", fmt::to_string(config->cache_limit_bytes));
  print("KILN_PCH_SIZE", fmt::to_string(kiln::precompiled_limit(*config)));
  print("KILN_COUNTERS_DIR", config->counters_dir.native());
  print("KILN_TRUSTED_UIDS", fmt::format("{}", fmt::join(config->trusted_uids, ",")));
  print("KILN_TRUSTED_GIDS", fmt::format("{}", fmt::join(config->trusted_gids, ",")));
  print("KILN_SEED", config->seeds.empty() ? "" : config->seeds.front().native());
  print("KILN_REMOTE_KEYS", config->keys.native());
  print("KILN_REMOTE_SIGN", config->sign.native());
  print("KILN_REMOTE", config->remote.servers);
  print("KILN_REMOTE_MODE", config->remote.mode);
  print("KILN_REMOTE_AUTH", config->remote.auth.native());
  print("KILN_REMOTE_CA", config->remote.ca.native());
  print("KILN_REMOTE_CERT", config->remote.certificate.native());
  print("KILN_REMOTE_WAIT", fmt::to_string(config->remote.wait.count()));
  print("KILN_COMPILE_TIMEOUT", fmt::to_string(config->compile_timeout.count()));
  print("KILN_WORKER_MEMORY", fmt::to_string(config->worker_memory_bytes));
  print("KILN_JOBS", fmt::to_string(config->jobs.value_or(0)));
  print("KILN_NO_JIT", config->no_jit ? "on" : "off");
  print("KILN_NVRTC", text(config->nvrtc));
  print("KILN_TOOLCHAIN", config->toolchain.value_or(""));
  print("KILN_CUDNN", text(config->cudnn));
  print("KILN_DRIVER", text(config->driver));
  print("KILN_WORKER", text(config->worker));
  print("KILN_TEMPLATE_DIR",
        fmt::format("{}", fmt::join(texts(config->template_dirs), ":")));
  print("KILN_DISABLE", fmt::format("{}", fmt::join(config->disabled, ",")));
  print("KILN_ATTENTION", std::to_string(static_cast<int>(config->attention)));
  print("KILN_STORE_SOURCE", config->store_source ? "on" : "off");
  print("KILN_RECORD", text(config->record));
  print("KILN_EVENTS", text(config->events));
  print("KILN_LOG", config->log_level.value_or(""));
  const auto proxy =
      remote::find_proxy({.base = "https://c"}, remote::read_variables());
  print("https_proxy", proxy ? proxy->url : proxy.error().message);
  const LibraryPlaces places = LibraryPlaces::of_process();
  print("CUDA_HOME", places.cuda_home.native());
  print("LD_LIBRARY_PATH",
        fmt::format("{}", fmt::join(texts(places.loader_path), ":")));
  print("VIRTUAL_ENV",
        fmt::format("{}", fmt::join(texts(places.python_environments), ":")));
  const auto worker = compile::worker_environment();
  print("worker", fmt::format("{}", fmt::join(worker, " ")));
  return 0;
}

}  // namespace
}  // namespace kiln

#if defined(__SANITIZE_ADDRESS__)
// A set-uid process may not be traced, which the search for leaks would do.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): its name
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif

int main() {
  return kiln::probe();
}
