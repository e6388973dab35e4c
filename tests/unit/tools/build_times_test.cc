#include "tools/build_times.h"

#include "tests/support/test.h"

namespace kiln::tools {
namespace {

TEST(BuildTimesTest, NothingIsSaidBeforeABuildHasEnded) {
  BuildTimes times;
  times.expect("a");
  EXPECT_EQ(times.left(1), std::nullopt);
}

TEST(BuildTimesTest, EachKernelTakesWhatItsOwnBuildsTook) {
  BuildTimes times;
  for (int i = 0; i < 3; ++i) times.expect("long");
  for (int i = 0; i < 10; ++i) times.expect("short");
  times.finish("long", 12s);
  times.finish("short", 100ms);
  EXPECT_EQ(times.left(1), 2 * 12s + 9 * 100ms);
  EXPECT_EQ(times.left(2), 12'450ms);
}

TEST(BuildTimesTest, AnEarlierRunCountsUntilThisOneKnowsBetter) {
  BuildTimes times;
  times.remember("a", 4s);
  times.remember("a", 6s);
  times.expect("a");
  times.expect("a");
  EXPECT_EQ(times.left(1), 10s);
  times.finish("a", 1s);
  EXPECT_EQ(times.left(1), 1s);
}

TEST(BuildTimesTest, AKernelThatWasNeverBuiltIsTakenForAnAverageOne) {
  BuildTimes times;
  times.remember("a", 2s);
  times.remember("b", 4s);
  times.expect("c");
  times.expect("c");
  EXPECT_EQ(times.left(1), 6s);
}

}  // namespace
}  // namespace kiln::tools
