// The library beside a remote cache and a seed: events and counts say where a kernel
// came from, and the settings are those of Options.

#include "cache/cache.h"
#include "tests/integration/library/library_service.h"
#include "tests/support/is_error.h"
#include "tests/support/remote_server.h"

namespace kiln {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = Event::Kind;

class LibraryRemoteTest : public test::LibraryTest {
 protected:
  /// A service with a cache of its own.
  [[nodiscard]] Options machine(const std::string& name) {
    Options made = options(driver_);
    made.cache_dir = temp_.path() / name;
    made.remote = server_.address().base + ";unsigned=1";
    made.remote_wait = std::chrono::seconds(60);
    return made;
  }
  void get(const Options& options) {
    auto service = open(options);
    ASSERT_TRUE(service);
    const auto kernel = service->get(small_source(), *service->device());
    ASSERT_TRUE(kernel) << kernel.error().message;
    statistics_ = service->statistics();
  }

  const test::SimulatedDriver driver_{"9.0"};
  test::RemoteServer server_;
  Statistics statistics_;
};

TEST_F(LibraryRemoteTest, AHitOfARemoteIsAnEventAndACountOfItsOwn) {
  Options builder = machine("builder");
  builder.remote_mode = "rw";
  get(builder);
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kCompiled, Kind::kLoaded));
  EXPECT_EQ(server_.requests("PUT"), 1);
  Options node = machine("node");
  node.no_jit = true;
  get(node);
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kRemote, Kind::kLoaded));
  EXPECT_EQ(statistics_, (Statistics{.loaded = 1, .remote_hits = 1}));
  get(node);
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kHit, Kind::kLoaded));
}

TEST_F(LibraryRemoteTest, AHitOfASeedIsAnEventAndACountOfItsOwn) {
  Options builder = machine("builder");
  get(builder);
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kCompiled, Kind::kLoaded));
  Options node = machine("node");
  node.remote = "";
  node.seeds = {{temp_.path() / "builder"}};
  get(node);
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kSeed, Kind::kLoaded));
  EXPECT_EQ(statistics_, (Statistics{.loaded = 1, .seed_hits = 1}));
}

TEST_F(LibraryRemoteTest, EachGetIsInTheCountsOfTheCacheUnderItsTier) {
  const Options once = options(driver_);
  get(once);
  auto service = open(once);
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(service->get(small_source(), *service->device()));
  service.reset();
  cache::CacheOptions looking;
  looking.root = *once.cache_dir;
  looking.make_root = false;
  const auto cache = cache::Cache::open(std::move(looking));
  auto counts = cache->stats().value().counters;
  EXPECT_EQ(counts["compiled"], 1U);
  EXPECT_EQ(counts["hits"], 1U);
  EXPECT_EQ(counts["memory_hits"], 3U);
}

TEST_F(LibraryRemoteTest, AWrongOptionIsNamedAtOpen) {
  Options options = machine("node");
  options.remote = server_.address().base;
  EXPECT_THAT(
      Service::open(options),
      test::IsError(ErrorCode::kInvalidArgument,
                    AllOf(HasSubstr("Options::remote: "), HasSubstr("KILN_REMOTE_KEYS"),
                          HasSubstr("unsigned=1"))));
  options.remote_mode = "both";
  EXPECT_THAT(Service::open(options).error().message,
              HasSubstr("Options::remote_mode: "));
  options.remote_mode = "off";
  EXPECT_TRUE(Service::open(options));
}

TEST_F(LibraryRemoteTest, ADeadServerFailsNoGetAndHoldsUpNoEnd) {
  server_.be_silent();
  Options options = machine("node");
  options.remote_mode = "rw";
  options.remote_wait = std::chrono::milliseconds(50);
  get(options);
  EXPECT_EQ(statistics_.compiled, 1U);
}

}  // namespace
}  // namespace kiln
