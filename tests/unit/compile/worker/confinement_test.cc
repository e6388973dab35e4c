// What a confined process is refused, in a child of this one: it is for good.

#include "compile/worker/confinement.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace kiln::compile {
namespace {

constexpr int kNoFilterHere = 99;

/// What `body` returns in a confined child. It must not allocate: another thread may
/// have held the heap's lock.
template <typename Body>
int confined(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!confine_process())
      ::_exit(98);
    ::_exit(::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? body() : kNoFilterHere);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/// 0 if that failed with EACCES.
int refused(long result) {
  return result == -1 && errno == EACCES ? 0 : 1;
}

class ConfinementTest : public testing::Test {
 protected:
  void SetUp() override {
    if (confined([] { return 0; }) == kNoFilterHere)
      GTEST_SKIP() << "this kernel takes no filter";
  }
};

TEST_F(ConfinementTest, NoProgramIsStarted) {
  EXPECT_EQ(confined([] {
              std::array<char*, 1> none{};
              return refused(::execve("/bin/true", none.data(), none.data()));
            }),
            0);
}

TEST_F(ConfinementTest, NoOtherProcessIsLookedInto) {
  EXPECT_EQ(
      confined([] { return refused(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }),
      0);
}

TEST_F(ConfinementTest, NoNetworkIsReached) {
  for (const int family : {AF_INET, AF_INET6, AF_NETLINK})
    EXPECT_EQ(confined([&] { return refused(::socket(family, SOCK_DGRAM, 0)); }), 0)
        << family;
  EXPECT_EQ(confined([] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 1; }), 0)
      << "a driver talks to its daemon through one";
}

TEST_F(ConfinementTest, NoPrivilegeIsGained) {
  EXPECT_EQ(confined([] { return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }), 1);
}

}  // namespace
}  // namespace kiln::compile
