#include "util/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>

#include "tests/support/child_process.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

/// stderr becomes a pipe that is full and that nobody reads; its reading end.
int stop_reading_stderr() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const std::string page(4096, 'x');
  while (::write(ends[1], page.data(), page.size()) > 0) {
  }
  EXPECT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);  // writes wait from now on
  EXPECT_EQ(::dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  return ends[0];
}

TEST(Log, AForkDoesNotWaitForALineThatNobodyReads) {
  test::ChildProcess host([] {
    ::alarm(20);
    const int unread = stop_reading_stderr();
    std::thread([] { log(LogLevel::kWarning, {"a line"}); }).detach();
    // The thread sleeps in write().
    const auto writes = [] {
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string call;
        std::getline(std::ifstream(task.path() / "wchan"), call);
        if (call.find("pipe_write") != std::string::npos)
          return true;
      }
      return false;
    };
    if (!test::eventually(1s, writes))
      std::this_thread::sleep_for(300ms);  // the system does not tell
    const auto begun = std::chrono::steady_clock::now();
    test::ChildProcess child([] {
      ::alarm(5);
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, STDERR_FILENO);
      log(LogLevel::kWarning, {"a line of the child"});
      return 0;
    });
    const int ended = child.wait();
    const bool is_prompt = std::chrono::steady_clock::now() - begun < 1s;
    // The writer goes on: ThreadSanitizer waits for stderr at the end of a process.
    std::array<char, 65'536> rest{};
    std::ignore = ::read(unread, rest.data(), rest.size());
    return ended == 0 && is_prompt ? 0 : 1;
  });
  EXPECT_EQ(host.wait(), 0);
}

}  // namespace
}  // namespace kiln
