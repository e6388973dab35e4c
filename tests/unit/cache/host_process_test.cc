// What the host may do to locks while they are held: close descriptors that it does not
// know, and fork while the file system does not answer.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "cache/owned_range.h"
#include "tests/support/child_process.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/kept_fd.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

constexpr std::size_t kHostBytes = 100'000;

/// The descriptors of this process that are open on that file.
std::vector<int> descriptors_of(const fs::path& path) {
  struct stat wanted {};
  EXPECT_EQ(::stat(path.c_str(), &wanted), 0) << path;
  std::vector<int> found;
  for (int fd = 3; fd < 1024; ++fd) {
    struct stat info {};
    if (::fstat(fd, &info) == 0 && info.st_dev == wanted.st_dev &&
        info.st_ino == wanted.st_ino)
      found.push_back(fd);
  }
  return found;
}

class HostProcessTest : public testing::Test {
 protected:
  HostProcessTest() {
    files_.before = [this](std::string_view call, int) {
      if (call == std::string_view(frozen_)) {
        ++waiting_;
        for (int i = 0; i < 3000 && !is_thawed_; ++i) std::this_thread::sleep_for(1ms);
      }
      return 0;
    };
  }

  [[nodiscard]] OwnedRange own(std::chrono::milliseconds heartbeat = 5ms) {
    auto owned = OwnedRange::try_own({&files_, file_, 0}, {}, heartbeat);
    return std::move(owned).value().value();  // throws if it is another's
  }

  /// Closes what is open on the lock file, and opens the host's file under each of the
  /// numbers.
  void host_takes_descriptors() {
    const std::vector<int> taken = descriptors_of(file_);
    ASSERT_FALSE(taken.empty());
    const UniqueFd mine(::open(host_file_.c_str(), O_RDWR | O_CREAT, 0600));
    const std::string text(kHostBytes, 'h');
    ASSERT_EQ(::write(mine.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    for (const int fd : taken) {
      ASSERT_EQ(::dup2(mine.get(), fd), fd);
      hosts_.push_back(fd);
    }
  }
  /// The host's file has its bytes, and its descriptors are open.
  void expect_hosts_own() {
    std::string text(2 * kHostBytes, '\0');
    for (const int fd : hosts_) {
      const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
      ASSERT_EQ(n, static_cast<ssize_t>(kHostBytes));
      EXPECT_EQ(text.find_first_not_of('h'), static_cast<std::size_t>(n));
    }
    for (const int fd : hosts_) ::close(fd);
    hosts_.clear();
  }

  /// From now on calls of that name wait until thaw(), or for 3 s.
  void freeze(const char* call) {
    waiting_ = 0;
    is_thawed_ = false;
    frozen_ = call;
  }
  void thaw() {
    frozen_ = "";
    is_thawed_ = true;
  }
  void expect_waiting() {
    EXPECT_TRUE(test::eventually(10s, [&] { return waiting_ > 0; }));
  }

  /// How long a fork takes, in parent and child.
  static Clock::duration time_of_fork() {
    const auto begun = Clock::now();
    test::ChildProcess child([] { return 0; });
    EXPECT_EQ(child.wait(), 0);
    return Clock::now() - begun;
  }

  const test::TempDir dir_;
  const fs::path file_ = dir_.path() / "locks" / "a7";
  const fs::path host_file_ = dir_.path() / "host";
  std::vector<int> hosts_;
  test::FaultyFileSystem files_;
  std::atomic<const char*> frozen_ = "";
  std::atomic<int> waiting_ = 0;
  std::atomic<bool> is_thawed_ = false;
};

TEST_F(HostProcessTest, ThatClosesDescriptorsOfLocksKeepsItsOwnFiles) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it is what ThreadSanitizer calls a race: of the host's making";
#endif
  std::ignore = take_lost_descriptors();
  {
    OwnedRange owned = own();
    host_takes_descriptors();
    std::this_thread::sleep_for(50ms);  // heartbeats
    EXPECT_FALSE(owned.held());
    owned.set_phase(Phase::kCompiling);
    owned.end_build();
  }
  {
    FileLock lock =
        **FileLock::try_lock({&files_, file_, kOwnerRecordBytes, kOwnerRecordBytes});
    host_takes_descriptors();
    EXPECT_FALSE(lock.held());
    lock.write(as_bytes("a record"), 0);
    std::array<std::byte, 8> read{};
    EXPECT_FALSE(lock.read(read.data(), read.size(), 0));
  }
  expect_hosts_own();
  EXPECT_EQ(take_lost_descriptors(), 2U);
  EXPECT_TRUE(own().held()) << "the next lock is like any other";
}

TEST_F(HostProcessTest, AForkedChildOfSuchAHostKeepsThemToo) {
  const OwnedRange owned = own(1h);
  host_takes_descriptors();
  test::ChildProcess child([&] {
    expect_hosts_own();
    return HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.wait(), 0);
  expect_hosts_own();
}

TEST_F(HostProcessTest, AForkDoesNotWaitForAHeartbeatThatHangs) {
  OwnedRange owned = own();
  freeze("pwrite");
  expect_waiting();
  EXPECT_LT(time_of_fork(), 1s);
  thaw();
  EXPECT_TRUE(owned.held());
}

TEST_F(HostProcessTest, AForkDoesNotWaitForALockThatHangs) {
  ASSERT_TRUE(own().held());  // the file is there
  for (const char* const call : {"open", "fstat", "set_lock", "pwrite"}) {
    SCOPED_TRACE(call);
    freeze(call);
    std::thread other([&] { EXPECT_TRUE(own(1h).held()); });
    expect_waiting();
    EXPECT_LT(time_of_fork(), 1s);
    thaw();
    other.join();
  }
}

TEST_F(HostProcessTest, AForkDoesNotWaitForTheEndOfALockThatHangs) {
  for (const char* const call : {"pwrite", "set_lock", "close"}) {
    SCOPED_TRACE(call);
    std::optional<OwnedRange> owned = own(1h);
    freeze(call);
    std::thread other([&] { owned.reset(); });
    expect_waiting();
    EXPECT_LT(time_of_fork(), 1s);
    thaw();
    other.join();
  }
}

TEST_F(HostProcessTest, AChildForkedWhileALockIsTakenDoesNotShareIt) {
  ASSERT_TRUE(own().held());
  for (const char* const call : {"open", "fstat", "set_lock"}) {
    SCOPED_TRACE(call);
    freeze(call);
    std::optional<OwnedRange> owned;
    std::thread other([&] { owned = own(1h); });
    expect_waiting();
    const test::Signal begun;
    const test::Signal end;
    test::ChildProcess child([&] {
      begun.raise();
      end.wait();
      return 0;
    });
    // A child shares all descriptors until its handler of fork() has run.
    begun.wait();
    thaw();
    other.join();
    // As if this process had been killed: nobody unlocks.
    for (const int fd : descriptors_of(file_)) ::close(fd);
    EXPECT_TRUE(own(1h).held()) << "the child holds it";
    end.raise();
    EXPECT_EQ(child.wait(), 0);
  }
}

}  // namespace
}  // namespace kiln::cache
