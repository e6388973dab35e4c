#include "tools/audit_modules.h"

#include <gnu/libc-version.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "build/config.h"
#include "compile/pool/worker_path.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

/// Beside the worker. Errors: kUnavailable.
Result<std::filesystem::path> find_audit_module() {
  constexpr int kMajor = 2;
  constexpr int kMinor = 35;
  int major = 0;
  int minor = 0;
  const char* const version = ::gnu_get_libc_version();
  if (std::sscanf(version, "%d.%d", &major, &minor) == 2 &&
      (major < kMajor || (major == kMajor && minor < kMinor)))
    return fail(ErrorCode::kUnavailable,
                "that takes glibc 2.35 or newer, and this is {}", version);
  auto module = KILN_TRY(compile::find_worker({}));
  module.replace_filename("libkiln-audit.so");
  std::error_code not_there;
  if (std::filesystem::exists(module, not_there))
    return module;
  return fail(ErrorCode::kUnavailable, "there is no {}: reinstall Kiln",
              module.native());
}

/// The value of LD_AUDIT with this module, behind those of others.
std::string with_module(const std::string& module) {
  const std::string others = process_environment()(kAuditVariable).value_or("");
  if (others.empty() || (":" + others + ":").find(":" + module + ":") != others.npos)
    return others.empty() ? module : others;
  return others + ":" + module;
}

}  // namespace

Result<std::string> audit_modules() {
  return with_module(KILN_TRY(find_audit_module()).native());
}

int execute(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // What this program has set for itself.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, &none, &before);
  ::execvp(arguments[0], arguments.data());
  const int err = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return err;
}

}  // namespace kiln::tools
