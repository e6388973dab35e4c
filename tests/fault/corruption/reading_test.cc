// Row 28: objects that change while threads and processes read them.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/fault/corruption/corruption.h"
#include "tests/support/child_process.h"

namespace kiln::test {
namespace {

constexpr int kThreads = 4;
constexpr int kReaders = 4;

/// What readers in all processes count.
struct SharedFlags {
  std::atomic<bool> over;
  std::atomic<std::uint64_t> misses;
  std::atomic<std::uint64_t> right;
  std::atomic<std::uint64_t> wrong;
};

class CorruptWhileRead : public Corruption {
 protected:
  void read(cache::Cache& cache) const {
    while (!shared_->over) {
      for (const RealObject* object : objects().all()) {
        const Answer answer = ask(cache, *object);
        ++(answer == Answer::kMiss    ? shared_->misses
           : answer == Answer::kRight ? shared_->right
                                      : shared_->wrong);
      }
    }
  }

  /// One change of the file of `object`, by whatever the number says.
  void change(const RealObject& object, std::uint64_t number) const {
    const std::string path = layout().object(object.key);
    const auto size = static_cast<off_t>(object.file.size());
    const auto place = static_cast<off_t>(number >> 8U) % size;
    const RealObject& other =
        *objects().all()[(number >> 40U) % objects().all().size()];
    switch (number % 8) {
      case 0:
        std::ignore = ::truncate(path.c_str(), place);
        break;
      case 1:
        std::ignore = ::truncate(path.c_str(), size + place);
        break;
      case 2:
        write(path, place, as_bytes("not what was there"));
        break;
      case 3:
        ::unlink(path.c_str());
        break;
      case 4:
        install(layout(), object, other.file);
        break;
      case 5:  // all of it, in place: a reader may see the beginning of one and the end
        write(path, 0, other.file);  // of the other
        break;
      default:
        install(layout(), object);
    }
  }

  static void write(const std::string& path, off_t at, ByteView bytes) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd)  // it may be in quarantine
      std::ignore = ::pwrite(fd.get(), bytes.data(), bytes.size(), at);
  }

  /// How many changes were made.
  [[nodiscard]] std::size_t change_until(
      std::chrono::steady_clock::time_point deadline) const {
    std::mt19937_64 random(14);
    std::size_t changes = 0;
    while (std::chrono::steady_clock::now() < deadline) {
      for (const RealObject* object : objects().all()) change(*object, random());
      changes += objects().all().size();
      if (changes % 3000 == 0) {
        std::error_code refilled;  // by a reader meanwhile: the next time, then
        fs::remove_all(layout().quarantine(), refilled);
      }
      std::this_thread::sleep_for(200us);
    }
    return changes;
  }

  const SharedWithChildren<SharedFlags> shared_;
};

TEST_F(CorruptWhileRead, fault_28_FilesThatChangeGiveTheRightBytesOrAMiss) {
  std::vector<ChildProcess> processes;
  for (int i = 0; i < kReaders; ++i) {
    processes.emplace_back([&] {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // who asks for no end must not outlive us
      const auto cache = cache::Cache::open(options_of(root_));
      read(*cache);
      return 0;
    });
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { read(*cache_); });
  const std::size_t changes =
      change_until(std::chrono::steady_clock::now() + 2500ms * fault_length());
  shared_->over = true;
  for (std::thread& thread : threads) thread.join();
  for (ChildProcess& process : processes)
    EXPECT_EQ(process.wait(), 0) << "minus a signal: -7 is SIGBUS";
  EXPECT_GT(shared_->right, 100U);
  EXPECT_GT(shared_->misses, 100U);
  count(changes, shared_->wrong);
  for (const RealObject* object : objects().all()) install(layout(), *object);
  expect_all_right("mended");
}

}  // namespace
}  // namespace kiln::test
