// What a confined process is refused, in a child of this one: it is for good.

#include "compile/worker/confinement.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

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
  for (const long call :
       {SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_open, SYS_pidfd_getfd,
        SYS_pidfd_send_signal, SYS_process_madvise, SYS_kcmp})
    EXPECT_EQ(confined([&] { return refused(::syscall(call, ::getppid(), 0, 0, 0)); }),
              0)
        << call;
}

TEST_F(ConfinementTest, NoOtherProcessIsSignalled) {
  EXPECT_EQ(confined([] { return refused(::kill(::getppid(), 0)); }), 0);
  EXPECT_EQ(confined([] { return refused(::kill(-1, 0)); }), 0);
  EXPECT_EQ(confined([] {
              const pid_t parent = ::getppid();
              return refused(::syscall(SYS_tgkill, parent, parent, 0));
            }),
            0);
  EXPECT_EQ(confined([] {
              return refused(::prlimit(::getppid(), RLIMIT_NOFILE, nullptr, nullptr));
            }),
            0);
  EXPECT_EQ(confined([] {
              rlimit limit{};
              return ::kill(::getpid(), 0) == 0 &&
                             ::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                             ::raise(SIGCONT) == 0
                         ? 0
                         : 1;
            }),
            0)
      << "its own signals and limits stay";
}

TEST_F(ConfinementTest, NoDescriptorSendsSignalsToAnotherProcess) {
  EXPECT_EQ(confined([] {
              const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
              const pid_t parent = ::getppid();
              const f_owner_ex owner{F_OWNER_PID, parent};
              return refused(::fcntl(fd, F_SETOWN, parent)) +
                     refused(::fcntl(fd, F_SETOWN_EX, &owner)) +
                     refused(::fcntl(fd, F_SETSIG, SIGKILL)) +
                     refused(::ioctl(fd, FIOSETOWN, &parent)) +
                     refused(::ioctl(fd, SIOCSPGRP, &parent)) +
                     (::fcntl(fd, F_GETFD) < 0 ? 1 : 0);
            }),
            0);
}

TEST_F(ConfinementTest, NoNamespaceAndNoMountIsMade) {
  for (const int space : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID}) {
    EXPECT_EQ(confined([&] {
                return refused(::syscall(SYS_clone,
                                         static_cast<unsigned long>(space | SIGCHLD),
                                         nullptr, 0, 0, 0));
              }),
              0)
        << space;
  }
  EXPECT_EQ(confined([] { return refused(::unshare(CLONE_NEWUSER)); }), 0);
  EXPECT_EQ(confined([] {  // the C library then uses clone()
              clone_args arguments{};
              arguments.flags = CLONE_NEWUSER;
              const long made = ::syscall(SYS_clone3, &arguments, sizeof(arguments));
              return made == -1 && errno == ENOSYS ? 0 : 1;
            }),
            0);
  for (const long call :
       {SYS_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_move_mount,
        SYS_open_tree, SYS_mount_setattr, SYS_setns, SYS_open_by_handle_at})
    EXPECT_EQ(confined([&] { return refused(::syscall(call, 0, 0, 0, 0, 0)); }), 0)
        << call;
}

TEST_F(ConfinementTest, AChildProcessIsStillMade) {
  EXPECT_EQ(confined([] {
              const pid_t child = ::fork();
              if (child == 0)
                ::_exit(0);
              int status = -1;
              return ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
            }),
            0);
}

TEST_F(ConfinementTest, NoRingAndNoPageFaultsReachTheKernelPastTheFilter) {
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
                          SYS_userfaultfd, SYS_bpf, SYS_perf_event_open})
    EXPECT_EQ(confined([&] { return refused(::syscall(call, 1, 0, 0, 0, 0)); }), 0)
        << call;
}

TEST_F(ConfinementTest, NoNetworkIsReached) {
  std::array<int, 2> pair{};
  for (const int family : {AF_INET, AF_INET6, AF_NETLINK, AF_TIPC}) {
    EXPECT_EQ(confined([&] { return refused(::socket(family, SOCK_DGRAM, 0)); }), 0)
        << family;
    EXPECT_EQ(confined([&] {
                return refused(::socketpair(family, SOCK_DGRAM, 0, pair.data()));
              }),
              0)
        << family;
  }
  EXPECT_EQ(confined([&] {
              return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0 &&
                             ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0
                         ? 0
                         : 1;
            }),
            0)
      << "a driver talks to its daemon through one";
}

TEST_F(ConfinementTest, NoPrivilegeIsGained) {
  EXPECT_EQ(confined([] { return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }), 1);
}

TEST_F(ConfinementTest, RootOnlyKeepsTheRightToOpenFiles) {
  EXPECT_EQ(confined([] {
              __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
              std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
              if (::syscall(SYS_capget, &header, sets.data()) != 0)
                return 1;
              const auto files = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;
              return (sets[0].permitted & ~files) == 0 && sets[1].permitted == 0 ? 0
                                                                                 : 2;
            }),
            0);
}

/// Landlock is a part of the kernel of its own: it may be absent.
class FileConfinementTest : public ConfinementTest {
 protected:
  void SetUp() override {
    if (::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1) < 1)
      GTEST_SKIP() << "NO LANDLOCK HERE: what the worker can write was not tested";
    ConfinementTest::SetUp();
    std::filesystem::create_directory(temporary_);
    std::ofstream(outside_) << "text";
    ::setenv("TMPDIR", temporary_.c_str(), 1);
  }
  void TearDown() override { ::unsetenv("TMPDIR"); }

  const test::TempDir folder_;
  const std::filesystem::path temporary_ = folder_.path() / "temporary";
  const std::filesystem::path outside_ = folder_.path() / "file";
};

TEST_F(FileConfinementTest, NoMemoryDescriptorOrEnvironmentOfAnotherProcessIsOpened) {
  const std::string parent = "/proc/" + std::to_string(::getpid());
  for (const char* const name : {"/mem", "/maps", "/environ", "/fd/0"}) {
    const std::string path = parent + name;
    EXPECT_EQ(confined([&] { return refused(::open(path.c_str(), O_RDONLY)); }), 0)
        << path;
  }
  const std::string memory = parent + "/mem";
  EXPECT_EQ(confined([&] { return refused(::open(memory.c_str(), O_RDWR)); }), 0);
  EXPECT_EQ(confined([] { return ::open("/proc/self/maps", O_RDONLY) < 0 ? 1 : 0; }),
            0);
}

TEST_F(FileConfinementTest, NothingOutsideTheTemporaryFolderIsWritten) {
  const auto path = outside_.native();
  const auto other = folder_.path() / "new";
  EXPECT_EQ(confined([&] { return refused(::open(path.c_str(), O_WRONLY)); }), 0);
  EXPECT_EQ(confined([&] { return refused(::open(path.c_str(), O_RDWR)); }), 0);
  EXPECT_EQ(confined([&] { return refused(::unlink(path.c_str())); }), 0);
  EXPECT_EQ(confined([&] { return refused(::rename(path.c_str(), other.c_str())); }),
            0);
  EXPECT_EQ(confined([&] { return refused(::link(path.c_str(), other.c_str())); }), 0);
  EXPECT_EQ(confined([&] { return refused(::mkdir(other.c_str(), 0700)); }), 0);
  EXPECT_EQ(confined([&] { return refused(::symlink("x", other.c_str())); }), 0);
  EXPECT_EQ(
      confined([&] { return refused(::open(other.c_str(), O_CREAT | O_RDWR, 0600)); }),
      0);
}

TEST_F(FileConfinementTest, EveryFileIsReadAndTheTemporaryFolderIsWritten) {
  const auto path = outside_.native();
  const auto inside = temporary_ / "file";
  const auto renamed = temporary_ / "renamed";
  EXPECT_EQ(confined([&] { return ::open(path.c_str(), O_RDONLY) < 0 ? 1 : 0; }), 0);
  EXPECT_EQ(confined([&] {
              return ::open(inside.c_str(), O_CREAT | O_RDWR, 0600) >= 0 &&
                             ::rename(inside.c_str(), renamed.c_str()) == 0 &&
                             ::truncate(renamed.c_str(), 0) == 0 &&
                             ::unlink(renamed.c_str()) == 0
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(confined([] { return ::open("/dev/null", O_RDWR) < 0 ? 1 : 0; }), 0);
  EXPECT_EQ(confined([] { return ::mknod("/dev/shm/kiln-device", S_IFCHR, 0) == 0; }),
            0)
      << "no device is made";
}

}  // namespace
}  // namespace kiln::compile
