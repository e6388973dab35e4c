// Namespaces that an ordinary user can make.

#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/child_process.h"

namespace kiln::test {

/// A new user namespace, in which this process keeps its ids, and others as `flags`
/// say: CLONE_NEWNS, CLONE_NEWPID, ... To be called by a process with one thread. False
/// where this machine has no such thing.
inline bool enter_namespaces(int flags) {
  const std::string uid = std::to_string(::geteuid());
  const std::string gid = std::to_string(::getegid());
  const auto write = [](const char* path, const std::string& text) {
    std::ofstream file(path);
    return static_cast<bool>(file << text << std::flush);
  };
  if (::unshare(CLONE_NEWUSER | flags) != 0)
    return false;
  write("/proc/self/setgroups", "deny");
  return write("/proc/self/uid_map", uid + " " + uid + " 1") &&
         write("/proc/self/gid_map", gid + " " + gid + " 1");
}

/// What a body of in_mount_namespace() returns where this machine lacks what it needs.
inline constexpr int kImpossible = 77;

/// Runs `body`, which is to return 0, in a mount namespace of its own; skips the test,
/// and says `what` is missing, where this machine allows no such thing.
template <typename Body>
void in_mount_namespace(const Body& body,
                        const char* what = "no mount namespace can be made here") {
  ChildProcess child([&] {
    if (!enter_namespaces(CLONE_NEWNS) ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return kImpossible;
    const int status = body();
    return testing::Test::HasFailure() ? 1 : status;
  });
  const int status = child.wait();
  if (status == kImpossible)
    GTEST_SKIP() << "NOT TESTED: " << what;
  EXPECT_EQ(status, 0);
}

/// An empty tmpfs, mounted there with those options: "size=192k". False where that is
/// not allowed.
inline bool mount_small_disk(const std::filesystem::path& folder,
                             const std::string& options) {
  std::filesystem::create_directories(folder);
  return ::mount("none", folder.c_str(), "tmpfs", 0,
                 ("mode=0700," + options).c_str()) == 0;
}

}  // namespace kiln::test
