// Namespaces that an ordinary user can make.

#pragma once

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <string>

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

}  // namespace kiln::test
