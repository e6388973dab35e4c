#include "util/units.h"

#include <gtest/gtest.h>

#include "tests/support/is_error.h"

namespace kiln {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(ParseSize, CountsIn1024WhateverTheSpelling) {
  for (const char* text :
       {"1536B", "1536 b", "1.5K", "1.5k", "1.5KB", "1.5KiB", "1.5 kib"})
    EXPECT_EQ(parse_size(text), 1536U) << text;
  EXPECT_EQ(parse_size("10GiB"), 10ULL << 30U);
  EXPECT_EQ(parse_size("1T"), 1ULL << 40U);
  EXPECT_EQ(parse_size("0"), 0U);
}

TEST(ParseSize, RefusesANumberWithoutAUnitUnlessItIsNothing) {
  EXPECT_EQ(parse_size("5").error().message,
            "the size '5' has no unit; write 5GiB, 5M or 5B");
  EXPECT_FALSE(parse_size("1.5"));
  EXPECT_EQ(parse_size("0"), 0U);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "G", "-1G", "+1G", "1..5G", "1.2.3", ".", "1X", "1GiBs",
                           "1ib", "1G ", "nan", "inf", "1e3", "0x10", "9999999999T"}) {
    const auto size = parse_size(text);
    EXPECT_THAT(size, test::IsError(ErrorCode::kInvalidArgument)) << text;
  }
}

TEST(ParseDuration, ReadsEveryUnitAndBareSeconds) {
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("30"), seconds(30));
  EXPECT_EQ(parse_duration("30s"), seconds(30));
  EXPECT_EQ(parse_duration("1.5m"), seconds(90));
  EXPECT_EQ(parse_duration("12h"), hours(12));
  EXPECT_EQ(parse_duration("7d"), hours(168));
  EXPECT_EQ(parse_duration("0"), seconds(0));
}

TEST(ParseDuration, RefusesWhatIsNoDuration) {
  for (const char* text :
       {"", "s", "-1s", "1y", "1 year", "36600d", "1e9", "nan", "1:30"}) {
    const auto duration = parse_duration(text);
    EXPECT_THAT(duration, test::IsError(ErrorCode::kInvalidArgument)) << text;
  }
}

TEST(ParseAge, NeedsAUnitSinceItsWriterMayMeanDays) {
  EXPECT_EQ(parse_age("5").error().message,
            "the duration '5' has no unit; write 5d, 5h or 5s");
  EXPECT_EQ(parse_age("1.5").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_age("5d"), hours(120));
  EXPECT_EQ(parse_age("0"), seconds(0));
  EXPECT_EQ(parse_age("soon").error().message, parse_duration("soon").error().message);
}

TEST(ParseErrors, QuoteTheTextAndShowTheForm) {
  EXPECT_EQ(parse_size("lots").error().message,
            "'lots' is not a size; write 512M, 1.5G or 10GiB");
  EXPECT_EQ(parse_duration("soon").error().message,
            "'soon' is not a duration; write 250ms, 30s, 5m, 12h or 7d");
}

TEST(FormatSize, IsShortAndNeverShows1024OfAUnit) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1.0 KiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size((1ULL << 20U) - 1), "1.0 MiB");
  EXPECT_EQ(format_size(10ULL << 30U), "10 GiB");
}

TEST(FormatDuration, PicksAUnitThatAPersonWouldUse) {
  EXPECT_EQ(format_duration(milliseconds(17)), "17 ms");
  EXPECT_EQ(format_duration(milliseconds(1500)), "1.5 s");
  EXPECT_EQ(format_duration(seconds(30)), "30 s");
  EXPECT_EQ(format_duration(minutes(5)), "5 min");
  EXPECT_EQ(format_duration(hours(12)), "12 h");
  EXPECT_EQ(format_duration(hours(168)), "7 d");
}

TEST(FormatTime, IsRfc3339InUtc) {
  using Clock = std::chrono::system_clock;
  EXPECT_EQ(format_time(Clock::time_point(seconds(0))), "1970-01-01T00:00:00Z");
  EXPECT_EQ(format_time(Clock::time_point(seconds(1700000000))),
            "2023-11-14T22:13:20Z");
}

}  // namespace
}  // namespace kiln
