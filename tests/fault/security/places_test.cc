// Row 33: who owns the way to the cache, and who may be trusted.

#include <sys/stat.h>

#include "build/settings.h"
#include "cache/cache.h"
#include "tests/fault/security/plants.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::kStranger;
using test::kVictim;
using test::ReferenceObject;
using test::User;

void own(const fs::path& path, const User& user, mode_t mode) {
  EXPECT_EQ(::chown(path.c_str(), user.uid(), user.uid()), 0) << path;
  EXPECT_EQ(::chmod(path.c_str(), mode), 0) << path;
}

class PlacesTest : public test::CampaignTest {
 protected:
  void SetUp() override {
    if (!User::can_become_another())
      GTEST_SKIP() << "ONLY ROOT CAN BECOME A SECOND USER: foreign places were not "
                      "tried";
    own(dir_.path(), kVictim, 0755);
  }

  [[nodiscard]] CacheOptions options(const fs::path& root) const {
    CacheOptions options;
    options.root = root;
    options.persistent_dir.clear();
    return options;
  }

  /// The victim finds its cache at `root` off, and goes on without; "" if so.
  [[nodiscard]] std::string is_off(const fs::path& root, const fs::path& named) const {
    return kVictim.run([&] {
      const auto cache = Cache::open(options(root));
      if (cache->mode() != Mode::kOff)
        return std::string("it is used");
      if (cache->mode_reason().find(named.native() + " ") == std::string::npos)
        return "it is not named: " + cache->mode_reason();
      if (cache->find(ReferenceObject(0).key()))
        return std::string("there is a hit");
      if (cache->publish(*ReferenceObject(0)).outcome != Published::kNotStored)
        return std::string("something was stored");
      if (cache->lock({.key = ReferenceObject(0).key()}).outcome !=
          LockOutcome::kBypassed)
        return std::string("there is a lock");
      return std::string();
    });
  }

  /// The victim finds its cache at `root` and reaches it by its descriptor; "" if so.
  [[nodiscard]] std::string is_held(const fs::path& root) const {
    return kVictim.run([&] {
      const auto cache = Cache::open(options(root));
      if (!cache->is_held() || cache->layout().root() != root)
        return "it is not held: " + cache->mode_reason();
      return cache->find(ReferenceObject(0).key()) ? std::string()
                                                   : std::string("there is no hit");
    });
  }

  /// `user` makes a cache with object 0.
  [[nodiscard]] std::string filled_by(const User& user, const fs::path& root) const {
    return user.run([&] {
      const auto cache = Cache::open(options(root));
      return cache->publish(*ReferenceObject(0)).outcome == Published::kStored
                 ? std::string()
                 : "not stored: " + cache->mode_reason();
    });
  }

  const test::TempDir dir_;
};

TEST_F(PlacesTest,
       fault_33_AFolderOnTheWayThatIsNotOursTurnsTheCacheOffAndAnOpenOneIsNotAsked) {
  struct Case {
    const char* what;
    const User* owner;
    mode_t mode;
  };
  for (const Case& each : {Case{"a stranger's folder", &kStranger, 0755},
                           Case{"a stranger's sticky folder", &kStranger, 01777},
                           Case{"one that the group can write", &kVictim, 0775},
                           Case{"one that all can write", &kVictim, 0777},
                           Case{"a sticky one of the victim's", &kVictim, 01777}}) {
    const fs::path way = dir_.path() / "way";
    const fs::path root = way / "root";
    fs::remove_all(way);
    fs::create_directory(way);
    own(way, kVictim, 0755);
    ASSERT_EQ(filled_by(kVictim, root), "");
    own(way, *each.owner, each.mode);
    campaign_.injected();
    const bool is_ours = each.owner == &kVictim;
    if (const auto wrong = is_ours ? is_held(root) : is_off(root, way); !wrong.empty())
      campaign_.wrong(std::string(each.what) + ": " + wrong);
    own(way, kVictim, 0755);
  }
}

TEST_F(PlacesTest, fault_33_ARootOrAFolderOfItThatIsNotOursTurnsTheCacheOff) {
  for (const char* below : {"", "objects", "objects/v1"}) {
    for (const mode_t mode : {mode_t{0777}, mode_t{0755}}) {
      if (*below == '\0' && mode == 0777)
        continue;  // a volume itself, see layouts_test.cc
      const fs::path root = dir_.path() / "root";
      fs::remove_all(root);
      ASSERT_EQ(filled_by(kVictim, root), "");
      // As it is printed: without a slash at the end.
      const fs::path place = *below == '\0' ? root : root / below;
      own(place, mode == 0777 ? kVictim : kStranger, mode);
      campaign_.injected();
      if (const auto wrong = is_off(root, place); !wrong.empty())
        campaign_.wrong(place.native() + ": " + wrong);
    }
  }
}

TEST_F(PlacesTest, fault_33_ALinkOnTheWayIsItsOwnersDoing) {
  const fs::path real = dir_.path() / "real";
  const fs::path link = dir_.path() / "link";
  ASSERT_EQ(filled_by(kVictim, real), "");
  fs::create_symlink(real, link);
  ASSERT_EQ(::lchown(link.c_str(), kStranger.uid(), kStranger.uid()), 0);
  campaign_.injected();
  if (const auto wrong = is_off(link, link); !wrong.empty())
    campaign_.wrong(wrong);
  ASSERT_EQ(::lchown(link.c_str(), kVictim.uid(), kVictim.uid()), 0);
  EXPECT_EQ(kVictim.run([&] {
    const auto cache = Cache::open(options(link));
    return cache->find(ReferenceObject(0).key()) ? std::string() : cache->mode_reason();
  }),
            "")
      << "one of the victim's own";
}

TEST_F(PlacesTest, fault_33_AFolderForLocksThatAStrangerWasFirstToMakeIsNotUsed) {
  const fs::path shared = dir_.path() / "var-tmp";
  const fs::path root = dir_.path() / "root";
  fs::create_directory(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);  // root's, as /var/tmp
  own(dir_.path(), kVictim, 0755);
  test::FaultyFileSystem files;
  files.on_type = [&](std::string_view path) {
    return path.starts_with(root.native()) ? std::int64_t{0x6969} : 0;
  };
  CacheOptions network = options(root);
  network.persistent_dir = shared;
  network.file_system = &files;
  ASSERT_EQ(kStranger.run([&] {
    const auto squatted = shared / ("kiln-" + std::to_string(kVictim.uid()));
    return ::mkdir(squatted.c_str(), 0777) == 0 && ::chmod(squatted.c_str(), 0777) == 0
               ? ""
               : "no folder";
  }),
            "");
  campaign_.injected();
  const auto wrong = kVictim.run([&] {
    const auto cache = Cache::open(network);
    if (cache->lock_folder().usable())
      return "locks in " + cache->lock_folder().path.native();
    if (cache->lock({.key = ReferenceObject(0).key()}).outcome !=
            LockOutcome::kBypassed ||
        cache->counters().get(Counter::kLockBypassed) != 1)
      return std::string("not counted");
    return cache->publish(*ReferenceObject(0)).outcome == Published::kStored
               ? std::string()
               : std::string("nothing can be stored");
  });
  if (!wrong.empty())
    campaign_.wrong(wrong);
}

TEST_F(PlacesTest, fault_33_OnlyOwnersThatAreNamedAreTrusted) {
  const fs::path root = dir_.path() / "root";
  ASSERT_EQ(filled_by(kVictim, root), "");
  const Layout layout(root);
  const fs::path object = layout.object(ReferenceObject(0).key());
  // As one who shares the root would leave it: his folder, his file, sound bytes.
  for (const fs::path& path : {object, object.parent_path()})
    own(path, kStranger, path == object ? 0444 : 0755);
  struct Case {
    std::string uids;
    bool hit;
  };
  const std::string named = std::to_string(kStranger.uid());
  for (const Case& each : {Case{"", false}, Case{"47112", false}, Case{named, true},
                           Case{"47112," + named, true}}) {
    campaign_.injected();
    const auto wrong = kVictim.run([&] {
      const auto config = settings({}, [&](const std::string& variable) {
        return variable == "KILN_TRUSTED_UIDS" ? std::optional(each.uids)
                                               : std::nullopt;
      });
      CacheOptions trusting = options(root);
      trusting.trusted_uids = config->trusted_uids;
      const auto cache = Cache::open(trusting);
      const auto found = cache->find(ReferenceObject(0).key());
      if (found && as_text(found->payload()) != test::reference_payload(0))
        return "other bytes";
      if (found.has_value() != each.hit)
        return each.hit ? "a miss" : "a hit";
      return each.hit == (cache->counters().get(Counter::kUntrusted) == 0)
                 ? ""
                 : "wrongly counted";
    });
    if (!wrong.empty())
      campaign_.wrong("KILN_TRUSTED_UIDS=" + each.uids + ": " + wrong);
  }
}

}  // namespace
}  // namespace kiln::cache
