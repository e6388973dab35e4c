// Code that runs as really another user, for tests of who may do what to whom. Only
// root can become somebody else: ordinary users skip those tests.

#pragma once

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "tests/support/run_and_read.h"

namespace kiln::test {

class User {
 public:
  constexpr explicit User(uid_t uid) : User(uid, uid) {}
  constexpr User(uid_t uid, gid_t gid) : User(uid, gid, gid) {}
  constexpr User(uid_t uid, gid_t gid, gid_t also)
      : uid_(uid), gid_(gid), also_(also) {}

  [[nodiscard]] static bool can_become_another() { return ::geteuid() == 0; }

  [[nodiscard]] uid_t uid() const { return uid_; }

  /// Runs `body` as this user, with its groups, in a forked child.
  /// What it returns is what is wrong, "" if nothing is. One that takes longer than
  /// `limit` is killed; that is wrong as well, and so is a crash.
  template <typename Body>
  [[nodiscard]] std::string run(
      const Body& body, std::chrono::seconds limit = std::chrono::seconds(30)) const {
    return run_and_read(
        [&]() -> std::string { return become() ? body() : "another user cannot be"; },
        limit);
  }

 private:
  [[nodiscard]] bool become() const {
    return ::setgroups(1, &also_) == 0 && ::setresgid(gid_, gid_, gid_) == 0 &&
           ::setresuid(uid_, uid_, uid_) == 0 &&
           ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;  // as one who logged in
  }

  uid_t uid_;
  gid_t gid_;
  gid_t also_;  // a supplementary group
};

}  // namespace kiln::test
