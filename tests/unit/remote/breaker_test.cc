// The breaker: what a server costs that is dead, slow, refuses, or asks for a rest.

#include "remote/breaker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/remote/virtual_time.h"

namespace kiln::remote {
namespace {

using test::always;
using namespace std::chrono_literals;
using Advice = Breaker::Advice;

class BreakerTest : public testing::Test {
 protected:
  Advice end(Verdict verdict, std::optional<std::chrono::seconds> retry_after = {}) {
    const auto leave = breaker_.admit(now_);
    EXPECT_TRUE(leave);
    return breaker_.report(*leave, now_, verdict, retry_after);
  }
  void open() {
    for (int i = 0; i < 3; ++i) end(Verdict::kFailed);
    ASSERT_TRUE(breaker_.is_open());
  }
  /// How long nothing is admitted from now on.
  Duration rest() { return breaker_.open_until() - now_; }

  TimePoint now_ = test::kStart;
  Breaker breaker_{always(0.5)};  // the middle: no jitter
};

TEST_F(BreakerTest, ThreeFailuresInARowOpenItForHalfAMinute) {
  EXPECT_EQ(end(Verdict::kFailed), Advice::kNone);
  EXPECT_EQ(end(Verdict::kFailed), Advice::kNone);
  EXPECT_FALSE(breaker_.is_open());
  EXPECT_EQ(end(Verdict::kFailed), Advice::kWarn);
  EXPECT_TRUE(breaker_.is_open());
  EXPECT_EQ(rest(), 30s);
  now_ += 30s - 1ns;
  EXPECT_FALSE(breaker_.admit(now_));
  now_ += 1ns;
  EXPECT_TRUE(breaker_.admit(now_));
}

TEST_F(BreakerTest, AGoodAnswerBetweenFailuresStartsTheCountAgain) {
  for (int i = 0; i < 10; ++i) {
    end(Verdict::kFailed);
    end(Verdict::kFailed);
    end(Verdict::kGood);
  }
  EXPECT_FALSE(breaker_.is_open());
}

TEST_F(BreakerTest, BadBodiesOpenItOnlyWhereThirtyTwoComeInARow) {
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 31; ++i) end(Verdict::kBadBody);
    EXPECT_FALSE(breaker_.is_open());
    if (round == 0)
      end(Verdict::kGood);
  }
  EXPECT_EQ(end(Verdict::kBadBody), Advice::kWarn);
  EXPECT_TRUE(breaker_.is_open());
}

TEST_F(BreakerTest, ABadBodyShowsThatADeadServerIsBack) {
  for (int i = 0; i < 3; ++i) end(Verdict::kFailed);
  EXPECT_TRUE(breaker_.is_open());
  now_ += 46s;
  end(Verdict::kBadBody);
  EXPECT_FALSE(breaker_.is_open());
}

TEST_F(BreakerTest, AnAbandonedRequestNeitherOpensNorClosesIt) {
  end(Verdict::kFailed);
  end(Verdict::kFailed);
  for (int i = 0; i < 10; ++i) end(Verdict::kAbandoned);
  EXPECT_FALSE(breaker_.is_open());
  end(Verdict::kFailed);
  EXPECT_TRUE(breaker_.is_open());
}

TEST_F(BreakerTest, HalfOpenItAdmitsOneProbeAndNoSecond) {
  open();
  now_ += rest();
  const auto probe = breaker_.admit(now_);
  ASSERT_TRUE(probe);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(breaker_.admit(now_));
  std::ignore = breaker_.report(*probe, now_, Verdict::kGood);
  EXPECT_FALSE(breaker_.is_open());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(breaker_.admit(now_));
}

TEST_F(BreakerTest, EachFailedProbeDoublesTheRestUpToTenMinutes) {
  open();
  std::vector<std::chrono::seconds> rests;
  for (int i = 0; i < 8; ++i) {
    rests.push_back(std::chrono::duration_cast<std::chrono::seconds>(rest()));
    now_ += rest();
    EXPECT_EQ(end(Verdict::kFailed), Advice::kNone) << "warned of twice";
  }
  EXPECT_EQ(rests, (std::vector<std::chrono::seconds>{30s, 60s, 120s, 240s, 480s, 600s,
                                                      600s, 600s}));
  // One that works starts from the beginning, and is warned of again.
  now_ += rest();
  end(Verdict::kGood);
  end(Verdict::kFailed);
  end(Verdict::kFailed);
  EXPECT_EQ(end(Verdict::kFailed), Advice::kWarn);
  EXPECT_EQ(rest(), 30s);
}

TEST_F(BreakerTest, JitterIsHalfOfTheRestEitherWay) {
  breaker_ = Breaker(always(0));
  open();
  EXPECT_EQ(rest(), 15s);
  breaker_ = Breaker(always(1));
  open();
  EXPECT_EQ(rest(), 45s);
  for (int i = 0; i < 10; ++i) {
    now_ += rest();
    end(Verdict::kFailed);
  }
  EXPECT_EQ(rest(), 900s) << "ten minutes and a half of them";
}

TEST_F(BreakerTest, AThousandBreakersDoNotReopenAtTheSameMoment) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> uniform;
  std::vector<Duration> rests;
  for (int i = 0; i < 1000; ++i) {
    breaker_ = Breaker([&] { return uniform(generator); });
    open();
    rests.push_back(rest());
  }
  std::ranges::sort(rests);
  EXPECT_GT(rests.back() - rests.front(), 29s);
  // No second of the thirty has twice its share.
  for (std::size_t i = 0; i + 70 < rests.size(); ++i)
    EXPECT_GT(rests[i + 70] - rests[i], 1s);
}

TEST_F(BreakerTest, AProbeThatNobodyReportsIsFollowedByAnother) {
  open();
  now_ += rest();
  const auto lost = breaker_.admit(now_);
  ASSERT_TRUE(lost);
  now_ += Breaker::kProbeLimit - 1ns;
  EXPECT_FALSE(breaker_.admit(now_));
  now_ += 1ns;
  const auto next = breaker_.admit(now_);
  ASSERT_TRUE(next);
  // The lost one comes back and says nothing any more.
  std::ignore = breaker_.report(*lost, now_, Verdict::kFailed);
  EXPECT_FALSE(breaker_.admit(now_));
  std::ignore = breaker_.report(*next, now_, Verdict::kGood);
  EXPECT_FALSE(breaker_.is_open());
}

TEST_F(BreakerTest, AnAbandonedProbeLetsTheNextRequestBeTheProbe) {
  open();
  now_ += rest();
  end(Verdict::kAbandoned);
  EXPECT_TRUE(breaker_.is_open());
  const auto probe = breaker_.admit(now_);
  ASSERT_TRUE(probe);
  EXPECT_FALSE(breaker_.admit(now_));
}

TEST_F(BreakerTest, WhatWasSentBeforeItOpenedChangesNothingWhenItEnds) {
  std::vector<Breaker::Leave> sent;
  for (int i = 0; i < 16; ++i) sent.push_back(*breaker_.admit(now_));
  for (int i = 0; i < 3; ++i)
    std::ignore =
        breaker_.report(sent[static_cast<std::size_t>(i)], now_, Verdict::kFailed);
  const TimePoint until = breaker_.open_until();
  now_ += 5s;
  for (std::size_t i = 3; i < sent.size(); ++i)
    std::ignore =
        breaker_.report(sent[i], now_, i % 2 == 0 ? Verdict::kFailed : Verdict::kGood);
  EXPECT_TRUE(breaker_.is_open());
  EXPECT_EQ(breaker_.open_until(), until);
}

TEST_F(BreakerTest, DeniedReadsTheCredentialsOnceThenItRestsForTenMinutes) {
  EXPECT_EQ(end(Verdict::kDenied), Advice::kReadCredentials);
  EXPECT_FALSE(breaker_.is_open());
  EXPECT_EQ(end(Verdict::kDenied), Advice::kWarn);
  EXPECT_EQ(rest(), 600s);
  now_ += rest();
  // The token may have been renewed meanwhile; said only once that it was not.
  EXPECT_EQ(end(Verdict::kDenied), Advice::kReadCredentials);
  EXPECT_EQ(end(Verdict::kDenied), Advice::kNone);
  EXPECT_EQ(rest(), 600s);
}

TEST_F(BreakerTest, CredentialsThatWereRenewedAreEnough) {
  EXPECT_EQ(end(Verdict::kDenied), Advice::kReadCredentials);
  EXPECT_EQ(end(Verdict::kGood), Advice::kNone);
  EXPECT_EQ(end(Verdict::kDenied), Advice::kReadCredentials) << "the next token's end";
}

TEST_F(BreakerTest, RequestsWithTheOldCredentialsDoNotCondemnTheNewOnes) {
  std::vector<Breaker::Leave> sent;
  for (int i = 0; i < 8; ++i) sent.push_back(*breaker_.admit(now_));
  EXPECT_EQ(breaker_.report(sent[0], now_, Verdict::kDenied), Advice::kReadCredentials);
  for (std::size_t i = 1; i < sent.size(); ++i)
    EXPECT_EQ(breaker_.report(sent[i], now_, Verdict::kDenied), Advice::kNone);
  EXPECT_FALSE(breaker_.is_open());
}

TEST_F(BreakerTest, ARestThatTheServerAsksForIsGivenAndNeverShortened) {
  for (const double chance : {0.0, 0.5, 1.0}) {
    breaker_ = Breaker(always(chance));
    end(Verdict::kFailed, 120s);
    EXPECT_TRUE(breaker_.is_open());
    EXPECT_GE(rest(), 120s);
    EXPECT_LE(rest(), 180s);
    now_ += 120s - 1ns;
    EXPECT_FALSE(breaker_.admit(now_));
    now_ += 60s + 1ns;
    end(Verdict::kGood);
    EXPECT_FALSE(breaker_.is_open());
  }
}

TEST_F(BreakerTest, ARestOfYearsOrBelowZeroIsBounded) {
  end(Verdict::kFailed, 1000000000s);
  EXPECT_LE(rest(), Breaker::kLongestRest * 3 / 2);
  breaker_ = Breaker(always(0.5));
  end(Verdict::kFailed, -5s);
  EXPECT_GE(rest(), 0s);
  EXPECT_TRUE(breaker_.admit(now_));
}

TEST_F(BreakerTest, AServerThatAlwaysAsksForNoRestIsLeftAloneAllTheSame) {
  // Else each request would wait for its slow 503.
  int asked = 0;
  const TimePoint end_of_hour = now_ + 1h;
  for (; now_ < end_of_hour; now_ += 240ms) {
    const auto leave = breaker_.admit(now_);
    if (!leave)
      continue;
    ++asked;
    std::ignore = breaker_.report(*leave, now_, Verdict::kFailed, 0s);
  }
  EXPECT_LE(asked, 12);
}

TEST_F(BreakerTest, ADeadServerCostsAProcessFewRequestsInAnHourWhateverTheChance) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 generator(seed);
    std::uniform_real_distribution<double> uniform;
    breaker_ = Breaker([&] { return uniform(generator); });
    int asked = 0;
    const TimePoint end_of_hour = now_ + 1h;
    for (; now_ < end_of_hour; now_ += 100ms) {
      if (const auto leave = breaker_.admit(now_)) {
        ++asked;
        std::ignore = breaker_.report(*leave, now_, Verdict::kFailed);
      }
    }
    EXPECT_LE(asked, 3 + 5 + 10) << seed;
  }
}

}  // namespace
}  // namespace kiln::remote
