// Mounts that nobody else sees.

#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/child_process.h"

namespace kiln::test {

/// Runs `body` in a mount namespace of its own; its exit status, or nullopt where this
/// machine allows no such thing.
template <typename Body>
std::optional<int> in_mount_namespace(const Body& body) {
  constexpr int kImpossible = 77;
  ChildProcess child([&] {
    const uid_t uid = ::getuid();
    if (::unshare(CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER)) != 0)
      return kImpossible;
    if (uid != 0)
      std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1\n";
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return kImpossible;
    const int status = body();
    return testing::Test::HasFailure() ? 1 : status;
  });
  const int status = child.wait();
  return status == kImpossible ? std::nullopt : std::optional(status);
}

/// An empty tmpfs of that size; false: it could not be mounted.
inline bool mount_small_disk(const std::filesystem::path& folder, const char* size) {
  std::filesystem::create_directories(folder);
  return ::mount("none", folder.c_str(), "tmpfs", 0,
                 (std::string("mode=0700,size=") + size).c_str()) == 0;
}

}  // namespace kiln::test
