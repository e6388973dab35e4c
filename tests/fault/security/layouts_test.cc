// Where a cache may lie: the layouts of homes, containers and clusters, as
// docs/admin.md lists them, and what another user can do to a root that is held open.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "codec/private_key.h"
#include "remote/client/credentials.h"
#include "tests/fault/security/plants.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::cache {
namespace {

using test::kStranger;
using test::kVictim;
using test::ReferenceObject;
using test::User;

constexpr uid_t kRoot = 0;
constexpr gid_t kTeam = 48'000;
constexpr User kOfGroupZero{48'001, 0};         // OpenShift's
constexpr User kOfUsers{48'002, 100};           // Jupyter's
constexpr User kOfTeam{48'003, 48'003, kTeam};  // fsGroup
const std::string kOwn = "kiln-" + std::to_string(kOfTeam.uid());

void make(const fs::path& folder, uid_t uid, gid_t gid, mode_t mode) {
  fs::create_directories(folder);
  EXPECT_EQ(::chown(folder.c_str(), uid, gid), 0) << folder;
  EXPECT_EQ(::chmod(folder.c_str(), mode), 0) << folder;
}

enum class How : std::uint8_t {
  kByPath,
  kHeld,
  kElsewhere,
  kHeldElsewhere,
  kReadOnly,
  kOff
};

struct Kind {
  const char* name;
  User user;
  /// Makes the folders; `base` is root's, 0755.
  std::function<void(const fs::path& base)> make;
  const char* named;  // KILN_CACHE_DIR, or the home's .cache/kiln, below the base
  How how;
  std::string used{};  // the folder below the base that has the objects, if not `named`
  std::vector<gid_t> groups{};
};

const std::vector<Kind> kLayouts{
    {"a home of the user's own", kOfUsers,
     [](const fs::path& base) { make(base / "home", kOfUsers.uid(), 100, 0755); },
     "home/.cache/kiln", How::kByPath},
    {"umask 002, with a group that the name service alone knows", kVictim,
     [](const fs::path& base) {
       make(base / "home", kVictim.uid(), kVictim.uid(), 0700);
       make(base / "home/.cache", kVictim.uid(), kVictim.uid(), 0775);
     },
     "home/.cache/kiln", How::kHeld},
    {"Jupyter: a home of group users", kOfUsers,
     [](const fs::path& base) { make(base / "home", kOfUsers.uid(), 100, 02775); },
     "home/.cache/kiln", How::kHeld},
    {"OpenShift: root's home, any user of group 0", kOfGroupZero,
     [](const fs::path& base) { make(base / "home", kRoot, 0, 0775); },
     "home/.cache/kiln", How::kHeld},
    {"below a volume with fsGroup", kOfTeam,
     [](const fs::path& base) { make(base / "data", kRoot, kTeam, 02775); },
     "data/kiln", How::kHeld},
    {"a volume with fsGroup itself", kOfTeam,
     [](const fs::path& base) { make(base / "data", kRoot, kTeam, 02775); }, "data",
     How::kHeld, "data/" + kOwn},
    {"below an emptyDir", kOfTeam,
     [](const fs::path& base) { make(base / "data", kRoot, kRoot, 0777); }, "data/kiln",
     How::kHeld},
    {"an emptyDir itself", kOfTeam,
     [](const fs::path& base) { make(base / "data", kRoot, kRoot, 0777); }, "data",
     How::kHeld, "data/" + kOwn},
    {"below a sticky folder of root's, as /tmp", kOfTeam,
     [](const fs::path& base) { make(base / "tmp", kRoot, kRoot, 01777); }, "tmp/kiln",
     How::kByPath},
    {"a folder of a group of KILN_TRUSTED_GIDS",
     kOfTeam,
     [](const fs::path& base) { make(base / "team", kRoot, kTeam, 02770); },
     "team/kiln",
     How::kByPath,
     "",
     {kTeam}},
    {"another user's folder", kOfTeam,
     [](const fs::path& base) { make(base / "theirs", kStranger.uid(), 0, 0777); },
     "theirs/kiln", How::kElsewhere, "tmp/" + kOwn},
    {"another user's link", kOfTeam,
     [](const fs::path& base) {
       make(base / "open", kRoot, kRoot, 0777);
       make(base / "mine", kOfTeam.uid(), kTeam, 0700);
       fs::create_symlink(base / "mine", base / "open/link");
       ASSERT_EQ(::lchown((base / "open/link").c_str(), kStranger.uid(), 0), 0);
     },
     "open/link/kiln", How::kElsewhere, "tmp/" + kOwn},
    {"root's, in an image that root warmed", kOfGroupZero,
     [](const fs::path& base) {
       make(base / "opt", kRoot, 0, 0775);
       CacheOptions warmed;
       warmed.root = base / "opt/kiln";
       EXPECT_EQ(Cache::open(warmed)->publish(*ReferenceObject(0)).outcome,
                 Published::kStored);
       for (const auto& each : fs::recursive_directory_iterator(warmed.root))
         ::chmod(each.path().c_str(), each.is_directory() ? 0755 : 0444);
       ::chmod(warmed.root.c_str(), 0755);
     },
     "opt/kiln", How::kReadOnly},
    {"OpenShift without a line in passwd: HOME is /, which only root can write",
     kOfTeam, [](const fs::path&) {}, "srv/kiln", How::kElsewhere, "tmp/" + kOwn},
    {"a home where a file is", kOfTeam,
     [](const fs::path& base) { std::ofstream(base / "file") << "x"; }, "file",
     How::kElsewhere, "tmp/" + kOwn},
    {"another user's folder, and an emptyDir in the place of /tmp", kOfTeam,
     [](const fs::path& base) {
       make(base / "theirs", kStranger.uid(), 0, 0755);
       make(base / "tmp", kRoot, kRoot, 0777);
     },
     "theirs/kiln", How::kHeldElsewhere, "tmp/" + kOwn},
    {"a folder that only root can write, and /tmp too", kOfTeam,
     [](const fs::path& base) { make(base / "tmp", kRoot, kRoot, 0755); }, "srv/kiln",
     How::kOff},
};

class LayoutsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!User::can_become_another())
      GTEST_SKIP() << "ONLY ROOT CAN BECOME A SECOND USER: no layout was tried";
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  }

  [[nodiscard]] CacheOptions options(const fs::path& named) const {
    CacheOptions options;
    options.root = named;
    options.persistent_dir.clear();
    options.temporary_dir = dir_.path() / "tmp";
    options.warns_when_off = false;
    return options;
  }

  const test::TempDir dir_;
};

/// "" or what is not as the layout has it.
std::string wrong_use(const Kind& kind, const fs::path& base, CacheOptions options,
                      bool is_first) {
  const auto cache = Cache::open(std::move(options));
  const std::string about =
      " (" + cache->mode_reason() + "; " + cache->place_reason() + ")";
  const Mode mode = kind.how == How::kOff        ? Mode::kOff
                    : kind.how == How::kReadOnly ? Mode::kReadOnly
                                                 : Mode::kReadWrite;
  if (cache->mode() != mode)
    return "mode " + std::to_string(static_cast<int>(cache->mode())) + about;
  if (mode == Mode::kOff)
    return "";
  const bool is_held = kind.how == How::kHeld || kind.how == How::kHeldElsewhere ||
                       kind.how == How::kReadOnly;
  if (cache->is_held() != is_held ||
      cache->has_index() != (kind.how == How::kByPath || kind.how == How::kElsewhere))
    return "held or not" + about;
  if (cache->place_reason().empty() != (kind.how == How::kByPath))
    return "no reason" + about;
  if (kind.how == How::kHeld &&
      cache->place_reason().find("chmod") != std::string::npos)
    return "a remedy for what needs none" + about;
  const bool is_foreign = about.find("another user") != about.npos;
  if (cache->counters().get(Counter::kUntrusted) !=
      (kind.how == How::kElsewhere && is_foreign ? 1 : 0))
    return "wrongly counted" + about;
  if (cache->layout().root() != base / (kind.used.empty() ? kind.named : kind.used))
    return "another root: " + cache->layout().root().native() + about;
  if (cache->lock_folder().path != cache->layout().locks() && mode == Mode::kReadWrite)
    return "locks elsewhere: " + cache->lock_folder().why;
  if (is_first && mode == Mode::kReadWrite &&
      cache->publish(*ReferenceObject(0)).outcome != Published::kStored)
    return "not stored" + about;
  const auto found = cache->find(ReferenceObject(0).key());
  if (!found || as_text(found->payload()) != test::reference_payload(0))
    return "no hit" + about;
  if (mode != Mode::kReadWrite)
    return "";
  const auto listed = cache->list({});
  if (!listed || listed->size() != 1)
    return "not listed" + about;
  const auto trimmed = cache->trim({.limit_bytes = 1ULL << 30U});
  return trimmed ? "" : "not trimmed: " + trimmed.error().message + about;
}

TEST_F(LayoutsTest, fault_33_EachHasItsPlaceAndASecondRunHits) {
  test::Campaign campaign;
  for (const Kind& kind : kLayouts) {
    const fs::path base = dir_.path() / std::to_string(&kind - kLayouts.data());
    make(base, kRoot, kRoot, 0755);
    make(base / "tmp", kRoot, kRoot, 01777);
    kind.make(base);
    CacheOptions options = this->options(base / kind.named);
    options.temporary_dir = base / "tmp";
    options.trusted_gids = kind.groups;
    for (const bool is_first : {true, false}) {
      campaign.injected();
      const auto wrong =
          kind.user.run([&] { return wrong_use(kind, base, options, is_first); });
      if (!wrong.empty())
        campaign.wrong(std::string(kind.name) + ": " + wrong);
    }
  }
}

TEST_F(LayoutsTest, fault_33_WhereNothingIsMadeOneThatCouldBeHeldIsAbsent) {
  make(dir_.path() / "data", kRoot, kTeam, 02775);
  EXPECT_EQ(kOfTeam.run([&] {
    CacheOptions looking = options(dir_.path() / "data/kiln");
    looking.make_root = false;
    const auto cache = Cache::open(looking);
    if (!cache->is_absent())
      return "it is not absent: " + cache->mode_reason();
    return fs::exists(dir_.path() / "data/kiln") ? std::string("it was made")
                                                 : std::string();
  }),
            "");
}

TEST_F(LayoutsTest, fault_33_SecretsOfKubernetesAreKeysAndCredentials) {
  test::Campaign campaign;
  const auto key = PrivateKey::generate()->to_pem();
  struct Case {
    const char* what;
    uid_t owner;
    gid_t group;
    mode_t mode;
    bool may;
  };
  for (const Case& each :
       {Case{"the user's", kOfTeam.uid(), kTeam, 0400, true},
        Case{"root's, with fsGroup", kRoot, kTeam, 0440, true},
        Case{"root's, without fsGroup", kRoot, kRoot, 0440, false},
        Case{"root's, for its group to write", kRoot, kTeam, 0460, false},
        Case{"root's, for all", kRoot, kTeam, 0444, false},
        Case{"the user's, for its group", kOfTeam.uid(), kTeam, 0440, false},
        Case{"a stranger's", kStranger.uid(), kTeam, 0440, false}}) {
    // As a volume of a Secret has it: links in a sticky folder.
    const fs::path secret = dir_.path() / "secret";
    fs::remove_all(secret);
    make(secret, kRoot, kTeam, 03777);
    make(secret / "..2026", kRoot, kTeam, 02755);
    std::ofstream(secret / "..2026/key") << *key;
    std::ofstream(secret / "..2026/auth") << "bearer word";
    fs::create_symlink("..2026", secret / "..data");
    for (const char* const name : {"key", "auth"}) {
      fs::create_symlink(fs::path("..data") / name, secret / name);
      const fs::path file = secret / "..2026" / name;
      ASSERT_EQ(::chown(file.c_str(), each.owner, each.group), 0);
      ASSERT_EQ(::chmod(file.c_str(), each.mode), 0);
    }
    campaign.injected();
    const auto wrong = kOfTeam.run([&]() -> std::string {
      if (PrivateKey::read(secret / "key").has_value() != each.may)
        return "the key";
      return remote::check_credentials(
                 {.auth = secret / "auth", .ca = {}, .certificate = {}},
                 {.base = "https://c"})
                         .has_value() == each.may
                 ? ""
                 : "the credentials";
    });
    if (!wrong.empty())
      campaign.wrong(std::string(each.what) + ": " + wrong);
  }
}

/// A root below a folder of everybody, held open by the victim.
class HeldRootTest : public LayoutsTest {
 protected:
  void SetUp() override {
    LayoutsTest::SetUp();
    if (IsSkipped())
      return;
    make(open_, kRoot, kRoot, 0777);
    make(dir_.path() / "tmp", kRoot, kRoot, 01777);
    make(dir_.path() / "precious", kVictim.uid(), kVictim.uid(), 0700);
    ASSERT_EQ(kVictim.run([&] {
      return Cache::open(options(root_))->publish(*ReferenceObject(0)).outcome ==
                     Published::kStored
                 ? ""
                 : "not stored";
    }),
              "");
  }

  /// The stranger moves the root away, and `plant` puts something in its place.
  [[nodiscard]] std::string swap(const std::function<bool()>& plant) const {
    return kStranger.run([&]() -> std::string {
      return ::rename(root_.c_str(), (open_ / "away").c_str()) == 0 && plant()
                 ? ""
                 : "not planted";
    });
  }

  const fs::path open_ = dir_.path() / "open";
  const fs::path root_ = open_ / "kiln";
  test::Campaign campaign_;
};

TEST_F(HeldRootTest, fault_33_WhoMovesItPlantsNothingInIt) {
  campaign_.injected();
  const auto wrong = kVictim.run([&]() -> std::string {
    const auto cache = Cache::open(options(root_));
    if (!cache->is_held())
      return "it is not held: " + cache->place_reason();
    // As this victim may do to himself, since a stranger cannot run in here.
    if (::rename(root_.c_str(), (open_ / "away").c_str()) != 0)
      return "not moved";
    fs::create_directory_symlink(dir_.path() / "precious", root_);
    if (!cache->find(ReferenceObject(0).key()))
      return "what was there is not found any more";
    if (cache->publish(*ReferenceObject(1)).outcome != Published::kStored)
      return "nothing can be stored";
    if (!fs::exists(Layout(open_ / "away").object(ReferenceObject(1).key())))
      return "it was stored elsewhere";
    return fs::is_empty(dir_.path() / "precious") ? "" : "something was planted";
  });
  if (!wrong.empty())
    campaign_.wrong(wrong);
}

TEST_F(HeldRootTest, fault_33_WhatIsPlantedInItsPlaceIsNotUsed) {
  struct Plant {
    const char* what;
    std::function<bool()> make;
  };
  const std::vector<Plant> plants{
      {"a folder of the stranger's", [&] { return fs::create_directory(root_); }},
      {"a link to the victim's folder",
       [&] {
         fs::create_directory_symlink(dir_.path() / "precious", root_);
         return true;
       }},
      {"a link to the root itself",
       [&] {
         fs::create_directory_symlink(open_ / "away", root_);
         return true;
       }},
      {"a FIFO", [&] { return ::mkfifo(root_.c_str(), 0666) == 0; }}};
  for (const Plant& plant : plants) {
    ASSERT_EQ(swap(plant.make), "") << plant.what;
    campaign_.injected();
    const auto wrong = kVictim.run([&]() -> std::string {
      const auto cache = Cache::open(options(root_));
      if (cache->find(ReferenceObject(0).key()))
        return "a hit";
      if (cache->layout().root() !=
          dir_.path() / "tmp" / ("kiln-" + std::to_string(kVictim.uid())))
        return "used: " + cache->layout().root().native();
      return fs::is_empty(dir_.path() / "precious") ? "" : "something was planted";
    });
    if (!wrong.empty())
      campaign_.wrong(std::string(plant.what) + ": " + wrong);
    fs::remove_all(root_);
    fs::rename(open_ / "away", root_);
  }
  EXPECT_EQ(kVictim.run([&] {
    return Cache::open(options(root_))->find(ReferenceObject(0).key()) ? "" : "a miss";
  }),
            "");
}

TEST_F(HeldRootTest, fault_33_AHostThatClosesItsDescriptorKeepsItsFiles) {
  campaign_.injected();
  const auto wrong = kVictim.run([&]() -> std::string {
    const auto cache = Cache::open(options(root_));
    const fs::path reached = cache->reach(root_);
    const int number = std::stoi(reached.parent_path().filename());
    ::close(number);
    const int other =
        ::open((dir_.path() / "precious").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (::dup2(other, number) != number)
      return "the number is not the host's";
    if (cache->publish(*ReferenceObject(1)).outcome == Published::kStored)
      return "something was stored";
    if (cache->lock({.key = ReferenceObject(1).key()}).outcome == LockOutcome::kHeld)
      return "there is a lock";
    return fs::is_empty(dir_.path() / "precious") ? ""
                                                  : "the host's folder was changed";
  });
  if (!wrong.empty())
    campaign_.wrong(wrong);
}

}  // namespace
}  // namespace kiln::cache
