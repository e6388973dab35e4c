// What a job tells of its requests: lines of the log, lines of events, the summary.

#include "build/journal.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/log.h"
#include "util/mutex.h"

namespace kiln {
namespace {

using nlohmann::json;

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    log_to([this](LogLevel level, const std::string& line) {
      const MutexLock lock(mutex_);
      lines_.push_back(fmt_level(level) + line);
    });
    EXPECT_TRUE(set_log_level("info"));
    config_.events = dir_.path() / "events.jsonl";
  }
  ~JournalTest() override {
    log_to({});
    std::ignore = set_log_level("warning");
  }
  JournalTest(const JournalTest&) = delete;
  JournalTest& operator=(const JournalTest&) = delete;

  static std::string fmt_level(LogLevel level) {
    return level == LogLevel::kWarning ? "warning: " : "";
  }
  [[nodiscard]] Asked asked() const {
    return {.key = &key_,
            .name = "scale.cu",
            .arch = "9.0",
            .began = std::chrono::steady_clock::now()};
  }
  static Fetched built_in(std::chrono::milliseconds time) {
    return {.object = nullptr, .outcome = FetchOutcome::kCompiled, .built_in = time};
  }
  [[nodiscard]] std::vector<json> events() const {
    std::vector<json> all;
    std::ifstream file(*config_.events);
    for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    return all;
  }
  std::vector<std::string> lines() {
    const MutexLock lock(mutex_);
    return lines_;
  }

  const test::TempDir dir_;
  const Digest key_ = Digest::of(as_bytes("a key"));
  Config config_;
  Mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(JournalTest, ABuildIsALineWithItsReasonAndTheSummaryIsToldAtTheEnd) {
  {
    Journal journal("kernels", config_);
    journal.got(asked(), built_in(1900ms), [] { return "differs in option"; });
    journal.got(
        asked(),
        {.object = nullptr, .outcome = FetchOutcome::kHit, .tier = cache::Tier::kDisk},
        [] { return "not asked for"; });
    StripedCounter loaded;
    journal.count_memory_hits(&loaded);
    for (int i = 0; i < 7; ++i) loaded.add();
    journal.count_memory_hits(nullptr);
  }
  EXPECT_THAT(lines(),
              ElementsAre("built scale.cu for 9.0 in 1.9 s; differs in option",
                          "kernels: 7 loaded already, 1 from disk, 1 built in 1.9 s"));
}

TEST_F(JournalTest, ABuildOfMoreThanTenSecondsIsAWarning) {
  Journal journal("kernels", config_);
  journal.got(asked(), built_in(12s), [] { return ""; });
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("warning: built scale.cu for 9.0"),
                                         HasSubstr("12 s"), HasSubstr("kiln warm"))));
}

TEST_F(JournalTest, AnEventHasWhatAFleetAsksFor) {
  config_.rank = 3;
  config_.traceparent = "00-ab-cd-01";
  Journal journal("kernels", config_);
  journal.got(asked(), built_in(1900ms), [] { return "differs in option"; });
  journal.failed(asked(), {ErrorCode::kTimeout, "too slow\nand its log"});
  journal.passed("a.cu", "option");
  const auto all = events();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0]["event"], "done");
  EXPECT_EQ(all[0]["name"], "scale.cu");
  EXPECT_EQ(all[0]["arch"], "9.0");
  EXPECT_EQ(all[0]["outcome"], "compiled");
  EXPECT_EQ(all[0]["build_ms"], 1900);
  EXPECT_EQ(all[0]["nearest"], "differs in option");
  EXPECT_EQ(all[0]["key"], key_.hex());
  EXPECT_EQ(all[0]["pid"], ::getpid());
  EXPECT_EQ(all[0]["rank"], 3);
  EXPECT_EQ(all[0]["traceparent"], "00-ab-cd-01");
  EXPECT_EQ(all[1]["outcome"], "timeout");
  EXPECT_EQ(all[1]["error"]["message"], "too slow");
  EXPECT_EQ(all[2]["outcome"], "passed");
  EXPECT_EQ(all[2]["reason"], "option");
}

TEST_F(JournalTest, WithoutStoredSourcesNoMessageOfACompilerIsWritten) {
  config_.store_source = false;
  Journal journal("kernels", config_);
  journal.failed(asked(), {ErrorCode::kCompileFailed, "secret.cu(1): error"});
  EXPECT_EQ(events()[0]["error"]["code"], "compile_failed");
  EXPECT_THAT(events()[0]["error"]["message"].get<std::string>(),
              testing::Not(HasSubstr("secret")));
}

TEST_F(JournalTest, InAFolderEachProcessHasAFile) {
  config_.events = dir_.path();
  Journal journal("kernels", config_);
  journal.passed("a.cu", "option");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names,
              ElementsAre(testing::EndsWith(std::to_string(::getpid()) + ".jsonl")));
}

TEST_F(JournalTest, AFileThatCannotBeOpenedIsOneWarningAndNoFailure) {
  config_.events = dir_.path() / "none" / "events";
  Journal journal("kernels", config_);
  journal.got(asked(), built_in(1s), [] { return ""; });
  EXPECT_THAT(lines(), ElementsAre(AllOf(HasSubstr("warning: no events are written"),
                                         HasSubstr("none/events")),
                                   HasSubstr("built scale.cu")));
}

TEST_F(JournalTest, APipeIsRefusedSinceItsReaderMayEnd) {
  const auto pipe = dir_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  config_.events = pipe;
  Journal journal("kernels", config_);
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("no events are written")));
}

TEST_F(JournalTest, LinesOfThreadsAndProcessesAreWholeAndOfAFullDiskToo) {
  constexpr int kEach = 200;
  test::ChildProcess other([&] {
    Journal journal("kernels", config_);
    for (int i = 0; i < kEach; ++i) journal.passed("other.cu", "option");
    return 0;
  });
  {
    Journal journal("kernels", config_);
    test::in_threads(4, [&](std::size_t) {
      for (int i = 0; i < kEach; ++i) journal.passed("a.cu", "option");
    });
  }
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(events().size(), 5U * kEach);  // each can be read
  test::ChildProcess limited([&] {
    const auto size = std::filesystem::file_size(*config_.events);
    const rlimit limit{size + 10, size + 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Journal journal("kernels", config_);
    journal.passed("a.cu", "option");
    journal.passed("a.cu", "option");
    return 0;
  });
  EXPECT_EQ(limited.wait(), 0);  // and not killed by SIGXFSZ
  Journal journal("kernels", config_);
  journal.passed("after.cu", "option");
  std::ifstream file(*config_.events);
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  EXPECT_TRUE(json::accept(last)) << last;
  EXPECT_THAT(last, HasSubstr("after.cu"));
}

TEST_F(JournalTest, AForkedChildTellsItsRequestsAndNoSummary) {
  Journal journal("kernels", config_);
  journal.passed("parent.cu", "option");
  test::ChildProcess child([&] {
    journal.passed("child.cu", "option");
    return journal.summary().empty() ? 0 : 1;
  });
  const pid_t pid = child.pid();
  EXPECT_EQ(child.wait(), 0);
  const auto all = events();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1]["name"], "child.cu");
  EXPECT_EQ(all[1]["pid"], pid);
}

TEST_F(JournalTest, NothingIsToldWhereNothingWasAskedFor) {
  { const Journal journal("kernels", config_); }
  EXPECT_THAT(lines(), IsEmpty());
}

}  // namespace
}  // namespace kiln
