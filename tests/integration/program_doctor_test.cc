// kiln doctor tells of the cache root: whose it is, on what file system, with how much
// room, whether locks work there; each with what to do. And it always comes to an end.

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <fstream>

#include "cache/file_system.h"
#include "device/profile.h"
#include "tests/support/child_process.h"
#include "tests/support/fault/lock_filter.h"
#include "tests/support/namespaces.h"
#include "tests/support/paths.h"
#include "tests/support/preload.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

class ProgramDoctorTest : public testing::Test {
 protected:
  ProgramDoctorTest() { kiln_.use_fake_nvrtc(); }

  /// What it reports here; `status` where a check fails.
  json report(int status = 0) { return kiln_.json_of({"doctor"}, status); }
  static json check(const json& report, const std::string& name) {
    for (const json& each : report["checks"]) {
      if (each["name"] == name)
        return each;
    }
    ADD_FAILURE() << "no check " << name << " in " << report.dump(1);
    return {{"verdict", ""}, {"detail", ""}, {"remedy", ""}};
  }
  static std::string text(const json& check, const char* member) {
    return check[member].get<std::string>();
  }
  /// That whatever is not well comes with what to do.
  static void expect_remedies(const json& report) {
    for (const json& each : report["checks"]) {
      if (each["verdict"] != "ok") {
        EXPECT_NE(each["remedy"], "") << each.dump(1);
      }
    }
  }

  /// Runs `body` in a process of its own; false where that says 77.
  template <typename Body>
  static bool in_child(const Body& body) {
    test::ChildProcess child([&] {
      const int status = body();
      return testing::Test::HasFailure() ? 1 : status;
    });
    const int status = child.wait();
    EXPECT_TRUE(status == 0 || status == 77) << status;
    return status != 77;
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramDoctorTest, AnUnknownVariableIsLikeAnotherByMoreThanItsBeginning) {
  const auto remedy = [this](const char* name) {
    kiln_.set(name, "x");
    const json checks = report()["checks"];
    kiln_.unset(name);
    const auto found = std::ranges::find_if(checks, [&](const json& each) {
      return text(each, "detail") ==
             std::string(name) + " is set, and Kiln knows no such variable";
    });
    return found == checks.end() ? "" : text(*found, "remedy");
  };
  EXPECT_EQ(remedy("KILN_CACHE_DRI"), "set KILN_CACHE_DIR if that is meant");
  for (const char* const name : {"KILN_FOO", "KILN_", "KILN_LO_GG"})
    EXPECT_THAT(remedy(name), HasSubstr("docs/guide.md")) << name;
}

TEST_F(ProgramDoctorTest, WritesAProfileThatPlansCanBeBuiltFor) {
  kiln_.set("KILN_DRIVER", test::paths::kSimulatedDriver);
  kiln_.set("KILN_SIMULATED_DEVICES", "8.6,9.0");
  const fs::path file = kiln_.folder() / "profile.json";
  const auto finished = kiln_.run({"doctor", "--profile", file, "--device", "1"});
  const auto properties = device::read_device_properties(file);
  ASSERT_TRUE(properties) << properties.error().message << finished.text();
  EXPECT_EQ(properties->capability(), (ComputeCapability{9, 0}));
  EXPECT_EQ(properties->ordinal, 1);
  std::ifstream text(file);
  EXPECT_EQ(json::parse(text).size(), 23U);  // cuDNN's keys, and no other
}

TEST_F(ProgramDoctorTest, SaysWhoseTheRootIsAndOnWhatFileSystem) {
  fs::create_directories(kiln_.cache_dir());
  ASSERT_EQ(::chmod(kiln_.cache_dir().c_str(), 0750), 0);
  kiln_.compiled(test::kTinySource);
  const json found = report();
  const json& cache = found["cache"];
  EXPECT_EQ(cache["root"], kiln_.cache_dir().native());
  EXPECT_EQ(cache["mode"], "read-write");
  EXPECT_EQ(cache["owner"], ::geteuid());
  EXPECT_EQ(cache["permissions"], "0750");
  const std::string name = cache::file_system_name(
      cache::real_file_system().type(kiln_.cache_dir().c_str()));
  EXPECT_EQ(cache["file_system"], name);
  EXPECT_EQ(cache["entries"], 1);
  struct statvfs room {};
  ASSERT_EQ(::statvfs(kiln_.cache_dir().c_str(), &room), 0);
  EXPECT_LE(cache["free_bytes"].get<double>(),
            static_cast<double>(room.f_blocks) * static_cast<double>(room.f_frsize));
  EXPECT_THAT(text(check(found, "cache root"), "detail"),
              AllOf(HasSubstr(kiln_.cache_dir().native()), HasSubstr("mode 0750"),
                    HasSubstr("(you)")));
  EXPECT_THAT(text(check(found, "file system"), "detail"), HasSubstr(name));
  expect_remedies(found);
}

TEST_F(ProgramDoctorTest, ACacheThatIsNotThereYetIsWellIfItCanBeMade) {
  const json found = report();
  EXPECT_EQ(found["cache"]["mode"], "absent");
  EXPECT_EQ(check(found, "cache root")["verdict"], "ok");
  EXPECT_EQ(check(found, "file system")["detail"].get<std::string>().find(
                cache::file_system_name(
                    cache::real_file_system().type(kiln_.folder().c_str()))),
            0U);
  EXPECT_NE(found["cache"]["free_bytes"], nullptr);
  EXPECT_FALSE(fs::exists(kiln_.cache_dir()));
}

TEST_F(ProgramDoctorTest, ACacheThatCannotBeMadeIsTold) {
  const fs::path disk = kiln_.folder() / "disk";
  fs::create_directory(disk);
  kiln_.set("KILN_CACHE_DIR", disk / "cache");
  test::in_mount_namespace([&] {
    if (::mount(disk.c_str(), disk.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY,
                nullptr) != 0)
      return test::kImpossible;
    const json found = report(1);
    EXPECT_EQ(check(found, "cache root")["verdict"], "fail");
    EXPECT_THAT(text(check(found, "cache root"), "detail"),
                HasSubstr("none can be made: " + disk.native() + ": Read-only"));
    expect_remedies(found);
    return 0;
  });
}

TEST_F(ProgramDoctorTest, AContainerWithoutProcOrWithAReadOnlyTmpBuilds) {
  for (const std::string lacking : {"/proc", "/tmp"}) {
    SCOPED_TRACE(lacking);
    test::in_mount_namespace([&] {
      const char* const folder = kiln_.folder().c_str();
      const int bind = MS_BIND | MS_REC;
      const int read_only = MS_REMOUNT | MS_BIND | MS_RDONLY;
      const bool is_lacking =
          lacking == "/proc"
              ? ::mount("none", "/proc", "tmpfs", 0, nullptr) == 0
              : ::mount(folder, folder, nullptr, bind, nullptr) == 0 &&
                    ::mount("/tmp", "/tmp", nullptr, bind, nullptr) == 0 &&
                    ::mount(nullptr, "/tmp", nullptr, read_only, nullptr) == 0;
      if (!is_lacking)
        return test::kImpossible;
      EXPECT_EQ(check(report(), "compile")["verdict"], "ok");
      kiln_.compiled(test::kTinySource);
      if (lacking != "/proc")
        return 0;
      const fs::path open = kiln_.folder() / "open";
      fs::create_directory(open);
      fs::permissions(open, fs::perms::all);
      kiln_.set("KILN_CACHE_DIR", open / "cache");
      EXPECT_THAT(kiln_.run({"warm", "--preset", "llama-3-8b", "--arch", "9.0"}).err,
                  HasSubstr("and cannot be held open (/proc is not mounted); make it"));
      return 0;
    });
  }
}

TEST_F(ProgramDoctorTest, WithoutDevIsToldSo) {
  test::in_mount_namespace([&] {
    if (::mount("none", "/dev", "tmpfs", 0, nullptr) != 0)
      return test::kImpossible;
    const json found = report(1);
    EXPECT_EQ(check(found, "compile")["verdict"], "fail");
    EXPECT_THAT(text(check(found, "compile"), "detail"),
                HasSubstr("(is /dev mounted?): No such file"));
    return 0;
  });
}

TEST_F(ProgramDoctorTest, AFolderOfTheRootThatOthersCanWriteFailsAndIsTold) {
  fs::create_directories(kiln_.cache_dir() / "objects");
  ASSERT_EQ(::chmod((kiln_.cache_dir() / "objects").c_str(), 0777), 0);
  const json found = report(1);
  EXPECT_EQ(found["cache"]["mode"], "off");
  const json root = check(found, "cache root");
  EXPECT_EQ(root["verdict"], "fail");
  EXPECT_THAT(text(root, "detail"), HasSubstr("mode 0777"));
  EXPECT_THAT(text(root, "remedy"), HasSubstr("chmod"));
  expect_remedies(found);
}

TEST_F(ProgramDoctorTest, ARootThatOthersCanWriteHasAFolderOfTheUsersInIt) {
  fs::create_directories(kiln_.cache_dir());
  ASSERT_EQ(::chmod(kiln_.cache_dir().c_str(), 0777), 0);
  const fs::path own = kiln_.cache_dir() / ("kiln-" + std::to_string(::geteuid()));
  fs::create_directories(own / "objects/v1");
  for (const fs::path& each : {own, own / "objects", own / "objects/v1"})
    ASSERT_EQ(::chmod(each.c_str(), 0700), 0);
  const json found = report();
  EXPECT_EQ(found["cache"]["mode"], "read-write");
  EXPECT_EQ(found["cache"]["root"], own.native());
  EXPECT_EQ(found["cache"]["permissions"], "0700");
  EXPECT_THAT(text(check(found, "cache root"), "detail"),
              AllOf(HasSubstr("mode 0777"), HasSubstr("takes its place")));
  expect_remedies(found);
}

TEST_F(ProgramDoctorTest, ASmallDiskInMemoryIsToldAsBoth) {
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(kiln_.cache_dir(), "size=512k"))
      return test::kImpossible;
    const json found = report();
    EXPECT_EQ(found["cache"]["file_system"], "tmpfs");
    EXPECT_LE(found["cache"]["free_bytes"], 512U << 10U);
    EXPECT_THAT(text(check(found, "file system"), "detail"), HasSubstr("next boot"));
    EXPECT_EQ(check(found, "disk space")["verdict"], "warn");
    expect_remedies(found);
    return 0;
  });
}

TEST_F(ProgramDoctorTest, ARootOnTheNetworkIsToldWithWhatFollows) {
  test::Preload{.network = kiln_.cache_dir(), .locks = {}, .clock = {}}.into(kiln_);
  fs::create_directories(kiln_.folder() / "run");
  fs::permissions(kiln_.folder() / "run", fs::perms::owner_all);
  kiln_.set("XDG_RUNTIME_DIR", kiln_.folder() / "run");
  kiln_.set("KILN_COUNTERS_DIR", kiln_.cache_dir() / "counts");
  kiln_.compiled(test::kTinySource);
  const json refused = check(report(), "counts");
  EXPECT_EQ(refused["verdict"], "warn") << "on the network, too";
  EXPECT_THAT(text(refused, "remedy"), HasSubstr("KILN_COUNTERS_DIR"));
  kiln_.set("KILN_COUNTERS_DIR", kiln_.folder() / "counts");
  const json found = report();
  EXPECT_THAT(text(check(found, "counts"), "detail"),
              HasSubstr(kiln_.folder() / "counts/kiln-"));
  EXPECT_EQ(found["cache"]["file_system"], "nfs");
  EXPECT_EQ(found["cache"]["network"], true);
  EXPECT_EQ(found["cache"]["index"], false);
  EXPECT_THAT(text(found["cache"], "lock_folder"),
              HasSubstr(kiln_.folder() / "run" / "kiln"));
  const json on = check(found, "file system");
  EXPECT_EQ(on["verdict"], "warn");
  EXPECT_THAT(text(on, "detail"), AllOf(HasSubstr("no lock"), HasSubstr("no index")));
  EXPECT_EQ(check(found, "locks")["verdict"], "ok");
  EXPECT_FALSE(fs::exists(kiln_.cache_dir() / "locks"));
  expect_remedies(found);
}

TEST_F(ProgramDoctorTest, LocksThatAreRefusedAreToldWithTheReason) {
  kiln_.compiled(test::kTinySource);
  const bool tried = in_child([&] {
    if (!test::refuse_locks(ENOLCK))
      return test::kImpossible;
    const json found = report();
    EXPECT_EQ(found["cache"]["locks"], "refused");
    const json locks = check(found, "locks");
    EXPECT_EQ(locks["verdict"], "warn");
    EXPECT_THAT(text(locks, "detail"), HasSubstr("No locks available"));
    EXPECT_EQ(check(found, "compile")["verdict"], "ok") << "without a slot";
    expect_remedies(found);
    return 0;
  });
  if (!tried)
    GTEST_SKIP() << "NOT TESTED: no system call filters here";
}

// As on a file system whose lock server is gone: the call that must not wait waits.
TEST_F(ProgramDoctorTest, LocksThatNeverReturnAreToldAndHoldNothingUp) {
  kiln_.compiled(test::kTinySource);
  const bool tried = in_child([&] {
    if (!test::hang_in_locks())
      return test::kImpossible;
    const auto began = std::chrono::steady_clock::now();
    const json found = report(1);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 40s);
    EXPECT_EQ(found["ok"], false);
    EXPECT_EQ(found["cache"]["locks"], "no answer");
    const json locks = check(found, "locks");
    EXPECT_EQ(locks["verdict"], "fail");
    EXPECT_THAT(text(locks, "detail"), AllOf(HasSubstr("did not return"),
                                             HasSubstr(kiln_.cache_dir() / "locks")));
    // What would take a lock is not tried, and says so; all else is looked at.
    for (const char* name : {"compile", "index"}) {
      EXPECT_EQ(check(found, name)["verdict"], "warn") << name;
      EXPECT_THAT(text(check(found, name), "detail"), HasSubstr("not checked"));
    }
    EXPECT_EQ(check(found, "cache root")["verdict"], "ok");
    expect_remedies(found);
    return 0;
  });
  if (!tried)
    GTEST_SKIP() << "NOT TESTED: no system call filters here";
}

TEST_F(ProgramDoctorTest, AnotherCacheOnAnotherNodeIsNamed) {
  const json here = report();
  const std::string same = kiln_.write("same.json", here.dump());
  EXPECT_EQ(check(kiln_.json_of({"doctor", "--compare", same}),
                  "cache against " + same)["verdict"],
            "ok");
  json other = here;
  other["cache"]["file_system"] = "lustre";
  const std::string file = kiln_.write("other.json", other.dump());
  const json compared =
      check(kiln_.json_of({"doctor", "--compare", file}), "cache against " + file);
  EXPECT_EQ(compared["verdict"], "warn");
  EXPECT_THAT(
      text(compared, "detail"),
      HasSubstr("on the other node " + kiln_.cache_dir().native() + " on lustre"));
  EXPECT_THAT(text(compared, "remedy"), HasSubstr("KILN_CACHE_DIR"));
  other.erase("cache");  // as an older Kiln reports
  const std::string older = kiln_.write("older.json", other.dump());
  const auto without = kiln_.run({"doctor", "--compare", older});
  EXPECT_EQ(without.status, 0) << without.text();
  EXPECT_THAT(without.out, Not(HasSubstr("cache against")));
  other["cache"] = "a text";
  const std::string foreign = kiln_.write("foreign.json", other.dump());
  EXPECT_EQ(kiln_.run({"doctor", "--compare", foreign}).status, 2);
}

TEST_F(ProgramDoctorTest, NodesThatChooseAnotherNvrtcOrHaveOtherSettingsAreTold) {
  kiln_.set("KILN_REMOTE_MODE", "off");
  json other = report();
  const std::string name = other["toolchains"][0]["name"];
  for (json& check : other["checks"]) {
    if (check["name"] == "nvrtc chosen")
      check["detail"] = "nvrtc-12.4-01234567: KILN_TOOLCHAIN is 12.4";
  }
  const std::string file = kiln_.write("other.json", other.dump());
  kiln_.set("KILN_NO_JIT", "1");
  kiln_.set("KILN_REMOTE", "https://user:secret@cache.example");
  const auto compared = kiln_.run({"doctor", "--compare", file});
  EXPECT_THAT(
      compared.out,
      AllOf(HasSubstr("warn  nvrtc chosen against " + file + ": here " + name +
                      "; on the other node nvrtc-12.4-01234567\n"),
            HasSubstr("warn  settings against " + file +
                      ": here KILN_NO_JIT=1, KILN_REMOTE=https://...@cache.example; on "
                      "the other node none\n"),
            Not(HasSubstr("secret"))));
  other.erase("settings");  // as an older Kiln reports
  kiln_.write("other.json", other.dump());
  EXPECT_THAT(kiln_.run({"doctor", "--compare", file}).out,
              Not(HasSubstr("settings against")));
  other["settings"] = {{{"variable", 1}}};
  kiln_.write("other.json", other.dump());
  EXPECT_EQ(kiln_.run({"doctor", "--compare", file}).status, 2);
}

}  // namespace
}  // namespace kiln
