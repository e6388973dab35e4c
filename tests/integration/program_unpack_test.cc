// kiln unpack, which writes many objects at a time: killed, twice at once, beside
// readers, and onto a disk that fills up.

#include <csignal>
#include <set>

#include "cache/cache.h"
#include "tests/integration/program_packs.h"
#include "tests/support/namespaces.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

constexpr int kMany = 200;
constexpr std::chrono::seconds kPatience{60};

class ProgramUnpackTest : public ProgramPacksTest {
 protected:
  struct Names {
    int objects = 0;
    int temporaries = 0;
  };
  [[nodiscard]] Names names(const std::string& machine) const {
    Names names;
    std::error_code error;
    const cache::Layout layout(place(machine));
    for (fs::recursive_directory_iterator each(layout.objects(), error), end;
         !error && each != end; each.increment(error)) {
      const std::string name = each->path().filename();
      names.temporaries += cache::Layout::is_temporary(name);
      names.objects += name.size() == 62;
    }
    return names;
  }
  /// Every object that has a name is whole.
  void expect_sound(const std::string& machine) {
    if (!fs::exists(cache::Layout(place(machine)).objects()))
      return;  // killed before it made the cache
    const json verified = kiln_.json_of({"verify"});
    EXPECT_EQ(verified["checked"], names(machine).objects);
    EXPECT_TRUE(verified["corrupt"].empty()) << verified;
    EXPECT_EQ(verified["untrusted"], 0);
  }

  const std::string pack_ = write_pack("job.kpack", kMany, 20'000);
};

TEST_F(ProgramUnpackTest, AfterAKillAnyNameIsOfAWholeObjectAndTheNextUnpackGoesOn) {
  for (const int at : {0, 1, kMany / 3, kMany - 40}) {
    const std::string machine = "killed-at-" + std::to_string(at);
    use_machine(machine);
    auto running = kiln_.start({"unpack", pack_});
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (names(machine).objects < at && std::chrono::steady_clock::now() < deadline) {
    }
    running.signal(SIGKILL);
    running.finish();
    expect_sound(machine);
    const int left = names(machine).objects;
    EXPECT_GE(left, at);
    // As a trim an hour later finds them.
    const cache::Layout layout(place(machine));
    if (fs::exists(layout.objects())) {
      for (const auto& each : fs::recursive_directory_iterator(layout.objects())) {
        if (cache::Layout::is_temporary(each.path().filename().native()))
          fs::last_write_time(each.path(),
                              fs::file_time_type::clock::now() - std::chrono::hours(2));
      }
      EXPECT_EQ(kiln_.run({"trim"}).status, 0);
    }
    EXPECT_EQ(names(machine).temporaries, 0);
    const json again = kiln_.json_of({"unpack", pack_});
    EXPECT_EQ(again["already_there"], left);
    EXPECT_EQ(again["stored"], kMany - left);
    expect_sound(machine);
  }
}

TEST_F(ProgramUnpackTest, OfSeveralAtOnceOneStoresEachObject) {
  std::vector<test::Running> running;
  for (int i = 0; i < 3; ++i)
    running.push_back(kiln_.start({"unpack", pack_, "--json"}));
  int stored = 0;
  int already_there = 0;
  for (test::Running& each : running) {
    const json done = each.finish().json();
    stored += done["stored"].get<int>();
    already_there += done["already_there"].get<int>();
    EXPECT_EQ(done["failed"], 0);
  }
  EXPECT_EQ(stored, kMany);
  EXPECT_EQ(already_there, 2 * kMany);
  EXPECT_EQ(names("node").temporaries, 0);
  expect_sound("node");
}

TEST_F(ProgramUnpackTest, AReaderBesideItSeesWholeObjectsOnly) {
  auto running = kiln_.start({"unpack", pack_});
  cache::CacheOptions options;
  options.root = place("node");
  const auto cache = cache::Cache::open(options);
  int hits = 0;
  for (bool is_last = false; !is_last;) {
    is_last = !test::is_running(running.pid());
    for (int i = 0; i < kMany; i += 7)
      hits += cache->find(test::SampleObject(i).key()).has_value();
  }
  EXPECT_EQ(running.finish().status, 0);
  EXPECT_GE(hits, kMany / 7);
  const auto counted = cache->counters().snapshot();
  for (const auto& [name, count] : counted) {
    EXPECT_FALSE(name.starts_with("corrupt") || name.starts_with("untrusted") ||
                 name.starts_with("unreadable"))
        << name << ": " << count;
  }
}

TEST_F(ProgramUnpackTest, ADiskThatFillsUpKeepsWhatIsStoredAndSaysWhatToDo) {
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(place("node"), "size=2m"))
      return test::kImpossible;
    const auto full = kiln_.run({"unpack", pack_});
    EXPECT_EQ(full.status, 3) << full.text();
    EXPECT_THAT(full.err, HasSubstr("No space left on device"));
    EXPECT_THAT(full.out, HasSubstr("make room, and the same command again"));
    const auto [objects, temporaries] = names("node");
    EXPECT_GT(objects, 0);
    EXPECT_EQ(temporaries, 0);
    expect_sound("node");
    if (::mount("none", place("node").c_str(), "tmpfs", MS_REMOUNT, "size=64m") != 0)
      return test::kImpossible;
    EXPECT_EQ(kiln_.json_of({"unpack", pack_})["already_there"], objects);
    EXPECT_EQ(names("node").objects, kMany);
    return 0;
  });
}

TEST_F(ProgramUnpackTest, PacksOfOneCacheHaveTheSameBytesThoughThreadsReadIt) {
  ASSERT_EQ(kiln_.run({"unpack", pack_}).status, 0);
  std::set<std::string> packed;
  for (int i = 0; i < 3; ++i) {
    const std::string file = place("again.kpack");
    ASSERT_EQ(kiln_.run({"pack", "-o", file, "--serial", "7"}).status, 0);
    packed.insert(read_text_file(file, 64U << 20U).value());
  }
  EXPECT_EQ(packed.size(), 1U);
}

}  // namespace
}  // namespace kiln
