#include "compile/pool/crash_history.h"

#include <gtest/gtest.h>

namespace kiln::compile {
namespace {

using std::chrono::minutes;
using std::chrono::steady_clock;

class CrashHistoryTest : public testing::Test {
 protected:
  steady_clock::time_point now_{std::chrono::hours(1000)};
  CrashHistory history_{[this] { return now_; }};
  CompileJob job_{.label = "a", .source = "source"};
  Error error_{ErrorCode::kTimeout, "took too long"};
};

TEST_F(CrashHistoryTest, OneKillIsForgiven) {
  EXPECT_FALSE(history_.refusal(job_));
  history_.record(job_, error_);
  EXPECT_FALSE(history_.refusal(job_));
}

TEST_F(CrashHistoryTest, TwoKillsAreRefusedWithTheSameMessage) {
  history_.record(job_, error_);
  history_.record(job_, error_);
  const auto refusal = history_.refusal(job_);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, error_.code);
  EXPECT_EQ(refusal->message, error_.message);
}

TEST_F(CrashHistoryTest, TheRefusalEndsAfterTenMinutes) {
  history_.record(job_, error_);
  history_.record(job_, error_);
  now_ += minutes(10) - std::chrono::seconds(1);
  EXPECT_TRUE(history_.refusal(job_));
  now_ += std::chrono::seconds(1);
  EXPECT_FALSE(history_.refusal(job_));
  history_.record(job_, error_);
  EXPECT_FALSE(history_.refusal(job_)) << "the old kills still count";
}

TEST_F(CrashHistoryTest, AnotherSourceOrLimitIsAnotherJob) {
  history_.record(job_, error_);
  history_.record(job_, error_);
  CompileJob other = job_;
  other.source += " ";
  EXPECT_FALSE(history_.refusal(other));
  other = job_;
  other.time_limit = std::chrono::seconds(600);
  EXPECT_FALSE(history_.refusal(other));
}

}  // namespace
}  // namespace kiln::compile
