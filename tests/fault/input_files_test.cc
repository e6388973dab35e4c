// Rows 61 to 66: headers whose path becomes another file, and headers on file systems
// whose metadata says less than a local disk's. A new scan never gets the key of what
// was there before; each scan here has the memory of a new process, and the memo of the
// earlier ones.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "key/header_scan.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/fault/syscall_tracer.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/unique_fd.h"

namespace kiln::key {
namespace {

using test::Fate;
using test::SystemCall;

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

bool runs(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

/// A file system that is there as long as the object is.
class Mount {
 public:
  Mount(const std::string& arguments, fs::path at) : at_(std::move(at)) {
    fs::create_directories(at_);
    is_there_ = runs("mount " + arguments + " " + at_.native());
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  ~Mount() {
    if (is_there_ && ::umount(at_.c_str()) != 0)
      ADD_FAILURE() << "cannot unmount " << at_;
  }
  [[nodiscard]] bool is_there() const { return is_there_; }

 private:
  const fs::path at_;
  bool is_there_ = false;
};

class InputFilesTest : public test::CampaignTest {
 protected:
  /// Of a source with <v.h>: in the folder, or in the toolkit that it is.
  enum class Place : std::uint8_t { kFolder, kToolkit };

  /// What the key says about the headers, as a new process finds it.
  [[nodiscard]] static std::string key_of(const fs::path& folder,
                                          const fs::path& memo = {},
                                          Place place = Place::kFolder) {
    SourceKeyInput input;
    input.source = "#include <v.h>\n";
    std::vector<fs::path> toolkit;
    (place == Place::kFolder ? input.include_dirs : toolkit).push_back(folder);
    // Long after everything was written.
    const auto scan = HeaderScanner(memo).scan(
        input, toolkit, {}, std::chrono::system_clock::now() + std::chrono::hours(1));
    return scan ? scan->headers->fields.digest().hex() : scan.error().message;
  }

  /// After the change the key is that of a process without a memo.
  void expect_seen(const fs::path& folder, const std::function<void()>& change,
                   const std::string& what) {
    for (const Place place : {Place::kFolder, Place::kToolkit}) {
      const fs::path memo = dir_.path() / fmt::format("memo{}", ++memos_);
      const std::string before = key_of(folder, memo, place);
      EXPECT_EQ(key_of(folder, memo, place), before) << what;
      change();
      campaign_.injected();
      if (key_of(folder, memo, place) == before)
        campaign_.wrong(what + ": the key of before");
    }
  }

  const test::TempDir dir_;
  int memos_ = 0;
};

// --- a path that becomes another file ----------------------------------------------

TEST_F(InputFilesTest,
       fault_61_APathThatBecomesAnotherFileMeanwhileTeachesNothingWrong) {
  if (!test::can_trace())
    GTEST_SKIP() << "A PROCESS MAY NOT TRACE ITS CHILD HERE";
  write(dir_.path() / "one/v.h", "#define V 1\n");
  write(dir_.path() / "two/v.h", "#define V 2\n");
  const fs::path current = dir_.path() / "current";
  const auto turn_to = [&](const char* target) {
    fs::remove(current);
    fs::create_directory_symlink(dir_.path() / target, current);
  };
  const std::string one = key_of(dir_.path() / "one");
  const std::string two = key_of(dir_.path() / "two");
  for (const Place place : {Place::kFolder, Place::kToolkit}) {
    for (int at = 0, calls = 1; at < calls; ++at) {
      turn_to("one");
      const fs::path memo = dir_.path() / fmt::format("memo{}", ++memos_);
      const auto traced = test::trace(
          [&] {
            test::begin_faults();
            std::ignore = key_of(current, memo, place);
            test::end_faults();
            return 0;
          },
          [&](const SystemCall& call) {
            if (call.position == at) {
              turn_to("two");
              campaign_.injected();
            }
            return Fate{};
          });
      ASSERT_EQ(traced.status, 0);
      calls = static_cast<int>(traced.calls.size());
      for (const char* const target : {"one", "two"}) {
        turn_to(target);
        const fs::path real = dir_.path() / target;
        if (key_of(current, memo, place) != key_of(real, {}, place))
          campaign_.wrong(fmt::format("{} as {}, turned at call {}", target,
                                      place == Place::kFolder ? "folder" : "toolkit",
                                      at));
      }
    }
  }
}

// --- file systems whose metadata says less -----------------------------------------

TEST_F(InputFilesTest, fault_62_StoresThroughAMappingOnTmpfsAreSeen) {
  std::string name = "/dev/shm/kiln-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    GTEST_SKIP() << "there is no tmpfs at /dev/shm";
  const fs::path folder = name;
  write(folder / "v.h", "#define V 1\n");
  {
    const UniqueFd fd(::open((folder / "v.h").c_str(), O_RDWR | O_CLOEXEC));
    auto* const text = static_cast<char*>(
        ::mmap(nullptr, 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    ASSERT_NE(text, MAP_FAILED);
    expect_seen(
        folder, [&] { ++text[10]; }, "a store");
    ::munmap(text, 12);
  }
  fs::remove_all(folder);
}

TEST_F(InputFilesTest, fault_63_WhatAServerChangesBehindCachedAttributesIsSeen) {
  const fs::path folder = dir_.path() / "fuse";
  const fs::path behind = dir_.path() / "behind";
  fs::create_directory(behind);
  const test::FuseMount server(folder, behind,
                               {.attributes_live = std::chrono::minutes(1)});
  if (!server.is_mounted())
    GTEST_SKIP() << "FUSE CANNOT BE MOUNTED HERE";
  int version = 1;
  const auto put = [&](std::time_t time) {
    write(behind / "v.h", fmt::format("#define V {}\n", version++ % 10));
    const std::array<timespec, 2> times{{{time, 0}, {time, 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (behind / "v.h").c_str(), times.data(), 0), 0);
  };
  constexpr std::time_t kTime = 1'600'000'000;
  put(kTime);
  expect_seen(
      folder, [&] { put(kTime); }, "size and times as before");
  std::time_t time = kTime;
  expect_seen(
      folder, [&] { put(++time); }, "another time");
}

class ImageTest : public InputFilesTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || !runs("mksquashfs -version"))
      GTEST_SKIP() << "NO IMAGE CAN BE MADE AND MOUNTED HERE: needs root and "
                      "mksquashfs (squashfs-tools)";
    for (const char* const tile : {"32", "64"}) {
      write(dir_.path() / tile / "v.h", fmt::format("#define TILE {}\n", tile));
      ASSERT_TRUE(runs(fmt::format("mksquashfs {0} {0}.img -all-time 1600000000",
                                   (dir_.path() / tile).native())));
    }
    if (!Mount("-o loop " + image("32"), dir_.path() / "try").is_there())
      GTEST_SKIP() << "NO IMAGE CAN BE MOUNTED HERE";
  }

  [[nodiscard]] std::string image(const std::string& tile) const {
    return (dir_.path() / (tile + ".img")).native();
  }

  /// Keys of either image, mounted at one place by `mounted(tile)`, one after the
  /// other.
  template <typename Mounted>
  void expect_two_keys(const fs::path& folder, const Mounted& mounted) {
    for (const Place place : {Place::kFolder, Place::kToolkit}) {
      const fs::path memo = dir_.path() / fmt::format("memo{}", ++memos_);
      std::string keys[2];
      for (const int which : {0, 1}) {
        const auto mount = mounted(which == 0 ? "32" : "64");
        keys[which] = key_of(folder, memo, place);
        EXPECT_EQ(keys[which], key_of(folder, {}, place));
        campaign_.injected();
      }
      if (keys[0] == keys[1])
        campaign_.wrong("the second image has the first one's key");
    }
  }
};

TEST_F(ImageTest, fault_64_AnImageInPlaceOfAnotherWithItsTimesHasItsOwnKey) {
  const fs::path at = dir_.path() / "mounted";
  expect_two_keys(at, [&](const std::string& tile) {
    return std::make_unique<Mount>("-o loop " + image(tile), at);
  });
}

TEST_F(ImageTest, fault_65_AnImageBelowAnOverlayHasItsOwnKey) {
  struct Two {
    Mount lower;
    Mount overlay;
  };
  const fs::path lower = dir_.path() / "lower";
  const fs::path at = dir_.path() / "mounted";
  fs::create_directory(dir_.path() / "none");
  expect_two_keys(at, [&](const std::string& tile) {
    return std::unique_ptr<Two>(
        new Two{{"-o loop " + image(tile), lower},
                {fmt::format("-t overlay -o lowerdir={}:{} overlay", lower.native(),
                             (dir_.path() / "none").native()),
                 at}});
  });
}

// --- folders that cannot be listed --------------------------------------------------

/// A toolkit whose <v.h> asks for <Inner/w.h>, and a folder that is searched before it.
class ShadowTest : public InputFilesTest {
 protected:
  ShadowTest() {
    write(toolkit_ / "v.h", "#if __has_include(<Inner.h>)\n#endif\n");
    fs::create_directory(own_);
  }
  [[nodiscard]] std::string key(const fs::path& folder) const {
    SourceKeyInput input;
    input.source = "#include <v.h>\n";
    input.include_dirs = {folder};
    const auto scan = HeaderScanner({}).scan(input, {{toolkit_}});
    return scan ? scan->headers->fields.digest().hex() : scan.error().message;
  }

  const fs::path toolkit_ = dir_.path() / "toolkit";
  const fs::path own_ = dir_.path() / "own";
};

TEST_F(ShadowTest, fault_66_OfAFolderThatMayNotBeListedAreFound) {
  if (!test::User::can_become_another())
    GTEST_SKIP() << "ROOT ALONE CAN BECOME A USER WHO MAY NOT LIST A FOLDER";
  fs::permissions(dir_.path(), fs::perms::owner_all | fs::perms::others_exec);
  fs::permissions(own_, fs::perms::owner_all | fs::perms::others_exec);
  const test::User other(65534);
  const std::string before = other.run([&] { return key(own_); });
  write(own_ / "Inner.h", "shadow");
  campaign_.injected();
  if (other.run([&] { return key(own_); }) == before)
    campaign_.wrong("the shadow is not seen");
}

TEST_F(ShadowTest, fault_66_OfAFolderWhoseListFailsAreFound) {
  if (!test::can_trace())
    GTEST_SKIP() << "A PROCESS MAY NOT TRACE ITS CHILD HERE";
  for (int i = 0; i < 3; ++i) write(own_ / std::to_string(i), "");
  const std::string before = key(own_);
  write(own_ / "Inner.h", "shadow");
  const std::string after = key(own_);
  ASSERT_NE(after, before);
  for (const long failing : {SYS_openat, SYS_getdents64}) {
    bool is_open = false;
    const auto traced = test::trace(
        [&] {
          test::begin_faults();
          const std::string found = key(own_);
          test::end_faults();
          return found == after ? 0 : 1;
        },
        [&](const SystemCall& call) {
          const bool opens = call.number == SYS_openat &&
                             (call.arguments[2] & O_PATH) == 0 &&
                             fs::path(test::path_of(call)) == own_ / "";
          const bool lists = is_open && call.number == SYS_getdents64;
          is_open = (is_open && !lists) || opens;
          if (!(failing == SYS_openat ? opens : lists))
            return Fate{};
          campaign_.injected();
          return Fate::failed(EIO);
        });
    if (traced.status != 0)
      campaign_.wrong(fmt::format("call {} failed: the shadow is not seen", failing));
  }
  EXPECT_EQ(campaign_.injected_so_far(), 2);
}

TEST_F(ShadowTest, fault_66_OfAFolderThatMatchesNamesInAnotherCaseAreFound) {
  const fs::path behind = dir_.path() / "behind";
  fs::create_directory(behind);
  write(behind / "other.h", "");
  const test::FuseMount server(own_, behind, {.ignores_case = true});
  if (!server.is_mounted())
    GTEST_SKIP() << "FUSE CANNOT BE MOUNTED HERE";
  const std::string before = key(own_);
  write(behind / "iNNER.H", "shadow");
  campaign_.injected();
  if (key(own_) == before)
    campaign_.wrong("the shadow is not seen");
}

}  // namespace
}  // namespace kiln::key
