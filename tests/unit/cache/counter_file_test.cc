#include "cache/counter_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>

#include "tests/support/child_process.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/unique_fd.h"

namespace kiln::cache {
namespace {

using Counts = CounterFile::Counts;
using testing::IsSupersetOf;

constexpr std::chrono::milliseconds kLimit{20'000};  // nobody holds it that long here
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kMaxBytes = 65'536;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

class CounterFileTest : public testing::Test {
 protected:
  void add(const Counts& counts) {
    const auto added = file_.add(counts, kLimit);
    EXPECT_TRUE(added) << added.error().message;
  }
  Counts read() {
    const auto counts = file_.read(kLimit);
    EXPECT_TRUE(counts) << counts.error().message;
    return counts.value_or(Counts{});
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return (std::ostringstream() << file.rdbuf()).str();
  }
  /// In place of whatever is there.
  void put(std::string_view text) const {
    fs::remove_all(path_);
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  }
  /// Has to fail at once, and to go on as soon as that is gone.
  void expect_refused() {
    const auto started = std::chrono::steady_clock::now();
    EXPECT_EQ(file_.add({{"hits", 1}}, kLimit).error().code, ErrorCode::kUntrusted);
    EXPECT_EQ(file_.read(kLimit).error().code, ErrorCode::kUntrusted);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 5s);
    fs::remove_all(path_);
    add({{"hits", 1}});
    EXPECT_EQ(read(), (Counts{{"hits", 1}}));
    fs::remove(path_);
  }

  const test::TempDir dir_;
  const Layout layout_{dir_.path()};
  const fs::path path_ = layout_.counters();
  const TrustPolicy trust_ = TrustPolicy::of_this_process({});
  test::FaultyFileSystem files_;
  CounterFile file_{layout_.counters(), files_, trust_};
  const Counts sample_{{"corrupt.magic", 2}, {"hits", 1234}, {"misses", 56}};
};

TEST_F(CounterFileTest, AddsUp) {
  EXPECT_TRUE(read().empty());
  add({{"hits", 3}, {"misses", 1}});
  add({{"hits", 4}, {"publish_refused.ENOSPC", 2}});
  EXPECT_EQ(read(),
            (Counts{{"hits", 7}, {"misses", 1}, {"publish_refused.ENOSPC", 2}}));
}

TEST_F(CounterFileTest, NothingToAddTouchesNothing) {
  add({});
  EXPECT_TRUE(read().empty());
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(CounterFileTest, IsTextSortedByNameForThisUserAlone) {
  add(sample_);
  const std::string lines = "kiln counters 1\ncorrupt.magic 2\nhits 1234\nmisses 56\n";
  EXPECT_EQ(text(), lines + std::string(kPageBytes - lines.size() - 1, ' ') + '\n');
  EXPECT_EQ(fs::status(path_).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(CounterFileTest, CountsThatFillAPageAreAllThere) {
  Counts many;
  for (int i = 0; i < 1000; ++i) {
    many["name_" + std::to_string(i)] = static_cast<std::uint64_t>(i) + 1;
    if (i % 100 == 0) {
      fs::remove(path_);
      add(many);
      EXPECT_EQ(read(), many);
      EXPECT_EQ(fs::file_size(path_) % kPageBytes, 0U);
    }
  }
}

TEST_F(CounterFileTest, TruncatedAnywhereItKeepsTheWholeLinesAndGoesOnCounting) {
  add(sample_);
  const std::string whole = text();
  for (std::size_t size = 0; size < 100; ++size) {
    SCOPED_TRACE(size);
    put(whole.substr(0, size));
    Counts counts = read();
    EXPECT_THAT(sample_, IsSupersetOf(counts));
    EXPECT_EQ(counts.contains("hits"), size >= whole.find("misses"));
    add({{"hits", 1}});
    counts["hits"] += 1;
    EXPECT_EQ(read(), counts);
  }
}

TEST_F(CounterFileTest, ADamagedLineCostsThatLineAlone) {
  using namespace std::string_view_literals;
  for (const std::string_view garbage :
       {""sv, "hits"sv, "hits "sv, " 5"sv, "hits  5"sv, "hits x"sv, "hits -1"sv,
        "hits +1"sv, "hits 1 2"sv, "hits 0x10"sv, "hits 1\r"sv, "hits 1\0"sv, "\0\0"sv,
        "h/ts 3"sv, "hits\t3"sv, "h\xC3\xAFts 7"sv, "hits 18446744073709551616"sv,
        "hits 99999999999999999999999999999999999"sv}) {
    SCOPED_TRACE(garbage);
    put("kiln counters 1\na 1\n" + std::string(garbage) + "\nz 2\n");
    EXPECT_EQ(read(), (Counts{{"a", 1}, {"z", 2}}));
    add({{"hits", 1}});
    EXPECT_EQ(read(), (Counts{{"a", 1}, {"hits", 1}, {"z", 2}}));
  }
}

TEST_F(CounterFileTest, EveryByteMayBeAnyOther) {
  add(sample_);
  const std::string whole = text();
  for (std::size_t at = 0; at < 60; ++at) {
    for (const char byte : {'\0', '\n', ' ', '9', 'x', '\xFF'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      put(damaged);
      Counts counts = read();
      add({{"published", 1}});
      counts["published"] += 1;
      EXPECT_EQ(read(), counts) << at;
    }
  }
}

TEST_F(CounterFileTest, AnotherFirstLineCountsAsEmptyAndIsReplaced) {
  for (const std::string& other :
       {std::string(), std::string("kiln counters 2\nhits 7\n"),
        std::string("kiln counters 1"), std::string("hits 7\n"),
        std::string(10'000, '\0'), std::string(200'000, 'x'),
        std::string("\177ELF\n") + std::string(5000, '\n')}) {
    put(other);
    EXPECT_TRUE(read().empty());
    add({{"hits", 1}});
    EXPECT_EQ(read(), (Counts{{"hits", 1}}));
  }
}

TEST_F(CounterFileTest, OfTwoLinesWithOneNameTheLargerCounts) {
  put("kiln counters 1\nhits 3\nhits 9\nhits 5\n");
  EXPECT_EQ(read(), (Counts{{"hits", 9}}));
}

TEST_F(CounterFileTest, ASumStaysAtTheLargestValue) {
  add({{"hits", kMost - 1}});
  add({{"hits", 5}});
  EXPECT_EQ(read().at("hits"), kMost);
  add({{"hits", kMost}});
  EXPECT_EQ(read().at("hits"), kMost);
}

TEST_F(CounterFileTest, NothingOfALongerTextStaysBehind) {
  std::string longer = "kiln counters 1\n" + std::string(5000, '?');
  for (int i = 0; i < 1000; ++i) longer += "\nhits";
  put(longer);
  add({{"hits", 1}});
  EXPECT_EQ(text().find('?'), std::string::npos);
  EXPECT_EQ(text().find("hits"), text().rfind("hits"));
  EXPECT_EQ(fs::file_size(path_), longer.size());
}

TEST_F(CounterFileTest, OfAHugeFileOnlyTheBeginningIsRead) {
  add(sample_);
  fs::resize_file(path_, std::uintmax_t{1} << 40U);
  EXPECT_EQ(read(), sample_);
  add({{"hits", 1}});
  EXPECT_EQ(read().at("hits"), 1235U);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 2 * static_cast<std::int64_t>(kMaxBytes));
}

TEST_F(CounterFileTest, NamesThatNobodyCountsDoNotCrowdOutOthers) {
  std::string full = "kiln counters 1\n";
  for (int i = 0; full.size() + 20 < kMaxBytes; ++i)
    full += "aaa_" + std::to_string(i) + " 1\n";
  put(full);
  add({{"hits", 1}, {"unreadable_and_a_name_that_is_long", 2}});
  EXPECT_EQ(read(), (Counts{{"hits", 1}, {"unreadable_and_a_name_that_is_long", 2}}));
}

TEST_F(CounterFileTest, WhatIsNoFileIsRefusedAtOnce) {
  fs::create_directories(path_ / "deep");
  expect_refused();
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused();
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(path_.native().size(), sizeof(address.sun_path));
  path_.native().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
            0);
  expect_refused();
}

TEST_F(CounterFileTest, ASymbolicLinkIsNotFollowed) {
  const fs::path target = dir_.path() / "target";
  fs::create_symlink(target, path_);
  expect_refused();
  EXPECT_FALSE(fs::exists(target)) << "made through a link to nowhere";
  std::ofstream(target) << "precious";
  fs::create_symlink(target, path_);
  expect_refused();
  EXPECT_EQ(fs::file_size(target), 8U);
}

TEST_F(CounterFileTest, AFileOfOthersIsNotUsed) {
  put("kiln counters 1\nhits 7\n");
  ASSERT_EQ(::chmod(path_.c_str(), 0622), 0);
  expect_refused();
  put("kiln counters 1\nhits 7\n");
  files_.on_stat = [](auto, struct stat& info) { info.st_uid += 12'345; };
  EXPECT_EQ(file_.add({{"hits", 1}}, kLimit).error().code, ErrorCode::kUntrusted);
  EXPECT_EQ(file_.read(kLimit).error().code, ErrorCode::kUntrusted);
}

TEST_F(CounterFileTest, AFileThatMayNotBeReadIsRefused) {
  files_.fail("open", EACCES);
  EXPECT_EQ(file_.add({{"hits", 1}}, kLimit).error().code, ErrorCode::kIo);
  EXPECT_EQ(file_.read(kLimit).error().code, ErrorCode::kIo);
}

TEST_F(CounterFileTest, ARootThatIsGoneIsAnError) {
  fs::remove_all(dir_.path());
  EXPECT_EQ(file_.add({{"hits", 1}}, kLimit).error().code, ErrorCode::kIo);
  EXPECT_TRUE(read().empty());
}

std::size_t open_descriptors() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(CounterFileTest, AnyFailureAddsNothingOrEverythingAndLeaksNothing) {
  add(sample_);
  files_.forget_calls();
  add({{"hits", 1}});
  const std::vector<std::string> calls = files_.calls();
  ASSERT_THAT(calls, testing::Contains("pwrite"));
  const std::size_t descriptors = open_descriptors();
  for (std::size_t failing = 0; failing < calls.size(); ++failing) {
    for (const int err :
         {ENOSPC, EDQUOT, EIO, EACCES, EROFS, ENOLCK, EAGAIN, EMFILE, ESTALE}) {
      SCOPED_TRACE(calls[failing] + " " + std::to_string(err));
      Counts expected = read();
      files_.forget_calls();
      files_.before = [&](auto, int number) {
        return number == static_cast<int>(failing) ? -err : 0;
      };
      if (file_.add({{"hits", 1}}, 100ms))
        expected["hits"] += 1;
      files_.before = [](auto, int) { return 0; };
      EXPECT_EQ(read(), expected);
    }
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST_F(CounterFileTest, AWriteThatFailsHalfWayIsUndone) {
  add(sample_);
  test::ChildProcess child([&] {
    Counts many;
    for (int i = 0; i < 500; ++i) many["name_" + std::to_string(i)] = 1;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit size{.rlim_cur = kPageBytes + 1000, .rlim_max = RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &size) != 0)
      return 1;
    if (file_.add(many, kLimit))
      return 2;
    if (file_.read(kLimit).value_or(Counts{}) != sample_)
      return 3;
    // What needs no more room still counts.
    if (!file_.add({{"hits", 1}, {"new_name", 1}}, kLimit))
      return 4;
    size.rlim_cur = RLIM_INFINITY;
    ::setrlimit(RLIMIT_FSIZE, &size);
    return file_.add(many, kLimit) ? 0 : 5;
  });
  EXPECT_EQ(child.wait(), 0);
  const Counts counts = read();
  EXPECT_EQ(counts.size(), sample_.size() + 501);
  EXPECT_EQ(counts.at("hits"), 1235U);
  EXPECT_EQ(counts.at("name_499"), 1U);
}

TEST_F(CounterFileTest, AHolderIsWaitedForNoLongerThanTheLimit) {
  add(sample_);
  const UniqueFd holder(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(files_.set_lock(holder.get(), RangeLock::kExclusive, 0, 1), 0);
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(file_.add({{"hits", 1}}, 100ms).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(file_.read(100ms).value(), sample_) << "as it stands";
  const auto waited = std::chrono::steady_clock::now() - started;
  EXPECT_GE(waited, 200ms);
  EXPECT_LT(waited, 5s);
  ASSERT_EQ(files_.set_lock(holder.get(), RangeLock::kUnlock, 0, 1), 0);
  add({{"hits", 1}});
  EXPECT_EQ(read().at("hits"), 1235U);
}

TEST_F(CounterFileTest, ThreadsAddUp) {
  test::in_threads(8, [&](int i) {
    for (int round = 0; round < 50; ++round)
      add({{"hits", 1}, {"thread_" + std::to_string(i), 2}});
  });
  EXPECT_EQ(read().at("hits"), 400U);
  EXPECT_EQ(read().at("thread_7"), 100U);
}

}  // namespace
}  // namespace kiln::cache
