// Rows 50 to 54: mounts whose server is gone, as a FUSE file system of the test's own.
// Calls on it do not return: those of a server that takes no request end by SIGKILL
// alone, those of one that takes them and is silent not even by that.

#include <functional>
#include <future>
#include <thread>

#include "cache/cache.h"
#include "remote/client/servers.h"
#include "tests/support/fault/campaign.h"
#include "tests/support/fault_server.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/namespaces.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/sample_pack.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::FuseMount;
using test::ReferenceObject;

constexpr std::chrono::seconds kGoodTime{15};
constexpr const char* kNoMounts =
    "no FUSE file system can be mounted here (/dev/fuse, or user namespaces)";

/// How a server is gone.
using Death = void (FuseMount::*)();
constexpr Death kStops = &FuseMount::stop;
constexpr Death kIsSilent = &FuseMount::hold;

class DeadMountTest : public test::CampaignTest {
 public:
  struct Place {
    FuseMount& mount;
    fs::path path;
    test::KilnProgram& kiln;
  };
  /// Runs `body` where a folder is a mount, and `kiln` a program of its own.
  static void on_a_mount(const std::function<void(const Place&)>& body) {
    const auto with_mount = [&] {
      test::KilnProgram kiln;
      const fs::path place = kiln.folder() / "mount";
      FuseMount mount(place, kiln.folder() / "behind");
      if (!mount.is_mounted())
        return test::kImpossible;
      fs::permissions(kiln.folder() / "behind", fs::perms::owner_all);
      body({mount, place, kiln});
      mount.go_on();
      return 0;
    };
    test::in_mount_namespace(with_mount, kNoMounts);
  }
};

/// How long it took; a test failure if it did not end.
std::chrono::milliseconds run(test::KilnProgram& kiln,
                              const test::KilnProgram::Arguments& arguments,
                              test::Finished& finished) {
  const auto began = Clock::now();
  finished = kiln.start(arguments).finish(kGoodTime);
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
}

/// Side by side: each waits.
std::vector<test::Finished> run_all(
    test::KilnProgram& kiln, const std::vector<test::KilnProgram::Arguments>& all) {
  std::vector<test::Running> running;
  for (const auto& arguments : all) running.push_back(kiln.start(arguments));
  std::vector<test::Finished> finished;
  for (test::Running& each : running) finished.push_back(each.finish(kGoodTime));
  return finished;
}

test::KilnProgram::Arguments warm_of(const std::string& templates) {
  return {"warm",     "--template-dir", templates, "--template",
          "tiny_fwd", "--arch",         "9.0",     "--json"};
}

void check_seed(const DeadMountTest::Place& at, Death dies) {
  test::KilnProgram& kiln = at.kiln;
  kiln.use_fake_nvrtc();
  const std::string templates = test::write_tiny_templates(kiln);
  ASSERT_EQ(kiln.run(warm_of(templates)).status, 0);
  ASSERT_EQ(kiln.run({"pack", "-o", at.path / "job.kpack"}).status, 0);
  kiln.set("KILN_SEED", at.path / "job.kpack");
  test::Finished finished;
  const auto alive = run(kiln, warm_of(templates), finished);
  (at.mount.*dies)();
  const auto dead = run(kiln, warm_of(templates), finished);
  EXPECT_EQ(finished.json()["hits"], 6) << finished.text();
  EXPECT_THAT(finished.err, Not(HasSubstr("no answer"))) << "hits ask no seed";
  kiln.set("KILN_CACHE_DIR", kiln.folder() / "new");
  const auto missed = run(kiln, warm_of(templates), finished);
  EXPECT_EQ(finished.json()["compiled"], 6) << finished.text();
  const auto said = finished.err.find("job.kpack gives no answer");
  ASSERT_NE(said, std::string::npos) << finished.text();
  EXPECT_EQ(finished.err.find("no answer", said + 20), std::string::npos)
      << "six kernels, and one wait: " << finished.err;
  std::fprintf(stderr, "hits %lld ms, with a dead seed %lld ms; misses %lld ms\n",
               static_cast<long long>(alive.count()),
               static_cast<long long>(dead.count()),
               static_cast<long long>(missed.count()));
  kiln.set("KILN_NO_JIT", "1");
  EXPECT_EQ(kiln.start(warm_of(templates)).finish(kGoodTime).status, 0)
      << "what is here needs no seed";
}

TEST_F(DeadMountTest, fault_50_ASeedWhoseServerStopsCostsOneShortWait) {
  campaign_.injected();
  on_a_mount([](const Place& at) { check_seed(at, kStops); });
}

TEST_F(DeadMountTest, fault_50_ASeedWhoseServerIsSilentCostsOneShortWait) {
  campaign_.injected();
  on_a_mount([](const Place& at) { check_seed(at, kIsSilent); });
}

/// A seed that dies between two questions, and comes back.
TEST_F(DeadMountTest, fault_51_ASeedThatDiesLaterIsPassedOverUntilItIsBack) {
  campaign_.injected();
  on_a_mount([](const Place& at) {
    const auto objects = test::sample_objects(3);
    fs::create_directory(at.kiln.folder() / "behind" / "root");
    cache::CacheOptions far;
    far.root = at.path / "root";
    far.persistent_dir = at.kiln.folder() / "persistent";
    for (const auto& object : objects)
      ASSERT_EQ(cache::Cache::open(far)->publish(object).outcome,
                cache::Published::kStored);
    cache::CacheOptions options;
    options.root = at.kiln.folder() / "local";
    options.seeds = {at.path / "root"};
    const auto cache = cache::Cache::open(options);
    EXPECT_TRUE(cache->find(objects[0].key()));
    at.mount.hold();
    auto began = Clock::now();
    EXPECT_FALSE(cache->find(objects[1].key()));
    EXPECT_LT(Clock::now() - began, 3s) << "it waited 250 ms";
    began = Clock::now();
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(cache->find(objects[2].key()));
    EXPECT_LT(Clock::now() - began, 3s) << "it waits no second time";
    EXPECT_EQ(cache->counters().snapshot().at("seed_refused"), 1U);
    ASSERT_EQ(cache->seeds()->states().size(), 1U);
    EXPECT_THAT(cache->seeds()->states()[0].error.value().message,
                HasSubstr("gives no answer"));
    at.mount.go_on();
    EXPECT_TRUE(test::eventually(
        5s, [&] { return cache->find(objects[2].key()).has_value(); }));
    EXPECT_TRUE(cache->find(objects[1].key()));
  });
}

TEST_F(DeadMountTest, fault_52_ACacheThatIsDeadAtOpenIsMemoryAlone) {
  campaign_.injected(2);
  on_a_mount([](const Place& at) {
    at.kiln.use_fake_nvrtc();
    at.kiln.set("KILN_CACHE_DIR", at.path / "cache");
    const std::string source = at.kiln.write("k.cu", test::kTinySource);
    const test::KilnProgram::Arguments compile{
        "compile", source, "--arch", "9.0", "-o", at.kiln.folder() / "k"};
    ASSERT_EQ(at.kiln.run(compile).status, 0);
    for (const Death dies : {kStops, kIsSilent}) {
      (at.mount.*dies)();
      fs::remove(at.kiln.folder() / "k");
      const auto began = Clock::now();
      const auto finished = at.kiln.start(compile).finish(kGoodTime);
      EXPECT_GE(Clock::now() - began, 2s);
      EXPECT_TRUE(fs::exists(at.kiln.folder() / "k")) << finished.text();
      const auto warning = finished.err.find("warning: the cache is off");
      ASSERT_NE(warning, std::string::npos) << finished.text();
      EXPECT_EQ(finished.err.find("warning", warning + 1), std::string::npos)
          << "one line says it: " << finished.err;
      at.mount.go_on();
    }
  });
}

TEST_F(DeadMountTest, fault_52_CountsOnADeadMountAreNotKeptAndNotWaitedFor) {
  campaign_.injected();
  on_a_mount([](const Place& at) {
    const auto objects = test::sample_objects(1);
    test::FaultyFileSystem files;
    files.on_type = [&](std::string_view path) -> std::int64_t {
      return path.starts_with((at.kiln.folder() / "root").native()) ? 0x6969 : 0;
    };
    cache::CacheOptions options;
    options.root = at.kiln.folder() / "root";
    options.persistent_dir = at.kiln.folder() / "persistent";
    options.counters_dir = at.path / "counts";
    options.file_system = &files;
    at.mount.hold();
    auto cache = cache::Cache::open(options);
    EXPECT_FALSE(cache->publish(objects[0]).error);
    EXPECT_EQ(cache->stats().value().counters["published"], 1U);
    EXPECT_THAT(cache->counts_at().error().message, HasSubstr("counts/kiln-"));
    cache.reset();
    at.mount.go_on();
    EXPECT_FALSE(fs::exists(at.path / "counts"));
  });
}

TEST_F(DeadMountTest, fault_53_VerbsThatLookNameTheFolderThatGivesNoAnswer) {
  campaign_.injected(8);
  on_a_mount([](const Place& at) {
    test::KilnProgram& kiln = at.kiln;
    kiln.use_fake_nvrtc();
    const std::string cache = at.path / "cache";
    kiln.set("KILN_CACHE_DIR", cache);
    const std::string key = kiln.compiled(test::kTinySource);
    at.mount.hold();
    const std::string named = cache + " gives no answer: is the mount dead (fuse at " +
                              at.path.native() + ")?";
    using Verbs = std::vector<test::KilnProgram::Arguments>;
    for (const auto& finished : run_all(kiln, Verbs{{"ls"},
                                                    {"stats"},
                                                    {"verify"},
                                                    {"show", key},
                                                    {"why", key, key},
                                                    {"ls", "--cache-dir", cache}})) {
      EXPECT_EQ(finished.status, 3) << finished.text();
      EXPECT_THAT(finished.err, HasSubstr(named));
    }
    for (const auto& finished : run_all(
             kiln,
             Verbs{{"doctor", "--json"}, {"doctor", "--json", "--cache-dir", cache}})) {
      EXPECT_EQ(finished.status, 1) << finished.text();
      EXPECT_THAT(finished.out, HasSubstr(named));
      EXPECT_THAT(finished.out, HasSubstr("nvrtc")) << "and what it can";
    }
    kiln.unset("KILN_CACHE_DIR");
    kiln.set("KILN_SEED", at.path / "job.kpack");
    for (const auto& finished :
         run_all(kiln, Verbs{{"stats", "--json"}, {"doctor", "--json"}})) {
      EXPECT_THAT(finished.out, HasSubstr("job.kpack gives no answer"));
      EXPECT_TRUE(nlohmann::json::accept(finished.out)) << finished.text();
    }
    kiln.set("KILN_TEMPLATE_DIR", at.path / "templates");
    kiln.set("KILN_SEED", "");
    for (const auto& finished :
         run_all(kiln, Verbs{{"doctor"},
                             {"templates"},
                             {"render", "rope_fwd"},
                             {"why", "--template", "rope_fwd", "--arch", "9.0"}})) {
      EXPECT_EQ(finished.status, 3) << finished.text();
      EXPECT_THAT(finished.err, HasSubstr("KILN_TEMPLATE_DIR: " + at.path.native()));
    }
  });
}

const test::KilnProgram::Arguments kWhyNoPlan = test::words(
    "attention why --profile h200 --dtype bf16 --pass fwd --mask causal --batch 1 "
    "--heads 8 --sq 512 --skv 512 --dqk 64");

/// Without a worker no mount is asked, so the program enters the dead one.
TEST_F(DeadMountTest, fault_53_ASignalEndsAVerbThatHangsInACall) {
  campaign_.injected(10);
  on_a_mount([](const Place& at) {
    at.kiln.set("KILN_CACHE_DIR", at.path / "cache");
    at.kiln.set("KILN_TEMPLATE_DIR", at.path / "templates");
    at.kiln.set("KILN_WORKER", "/nowhere");
    at.mount.stop();
    std::vector<std::pair<int, test::Running>> running;
    for (const int signal : {SIGTERM, SIGINT}) {
      for (const auto& verb :
           std::vector<test::KilnProgram::Arguments>{{"stats"},
                                                     {"doctor"},
                                                     {"templates"},
                                                     {"render", "rope_fwd"},
                                                     kWhyNoPlan})
        running.emplace_back(signal, at.kiln.start(verb));
    }
    std::this_thread::sleep_for(1s);
    for (auto& [signal, each] : running) {
      EXPECT_TRUE(test::is_running(each.pid())) << "it does not hang";
      each.signal(signal);
    }
    for (auto& [signal, each] : running) {
      const auto finished = each.finish(kGoodTime);
      EXPECT_EQ(finished.status, 128 + signal) << finished.text();
    }
  });
}

/// The call that touches the mount hangs, and nobody with it.
TEST_F(DeadMountTest, fault_54_ACacheThatDiesLaterHoldsUpNoForkAndNoOtherKey) {
  campaign_.injected(3);
  on_a_mount([](const Place& at) {
    const auto objects = test::sample_objects(3);
    fs::create_directory(at.kiln.folder() / "behind" / "root");
    cache::CacheOptions options;
    options.root = at.path / "root";
    options.runtime_dir = at.kiln.folder() / "runtime";
    fs::create_directory(options.runtime_dir);
    fs::permissions(options.runtime_dir, fs::perms::owner_all);
    const auto cache = cache::Cache::open(options);
    ASSERT_EQ(cache->publish(objects[0]).outcome, cache::Published::kStored);
    at.mount.hold();
    std::thread reader([&] { EXPECT_TRUE(cache->find(objects[0].key())); });
    std::thread writer([&] {
      EXPECT_EQ(cache->publish(objects[1]).outcome, cache::Published::kStored);
    });
    std::this_thread::sleep_for(200ms);  // both hang now, as far as one can tell
    const auto began = Clock::now();
    for (int i = 0; i < 2; ++i) {
      test::ChildProcess child([] { return 0; });
      EXPECT_EQ(child.wait(), 0);
    }
    EXPECT_LT(Clock::now() - began, 5s) << "fork waits";
    {
      const auto lock =
          cache->lock({.key = objects[2].key(), .look_again = [] { return false; }});
      EXPECT_EQ(lock.outcome, cache::LockOutcome::kHeld) << lock.reason;
    }
    EXPECT_LT(Clock::now() - began, 5s) << "another key waits";
    at.mount.go_on();
    reader.join();
    writer.join();
    EXPECT_TRUE(cache->find(objects[1].key()));
  });
}

/// Each transfer of another server is answered, and sent once.
TEST_F(DeadMountTest, AFolderThatIsARemoteCacheHoldsUpNoOtherServer) {
  campaign_.injected();
  on_a_mount([](const Place& at) {
    const test::FaultServer web([](const test::Exchange& exchange) {
      exchange.answer("404 Not Found", "");
      return true;
    });
    cache::Counters counters;
    remote::RemoteOptions options;
    for (const std::string& url : {"file://" + at.path.native(), web.url("")})
      options.servers.push_back({.base = url, .mode = remote::Mode::kRead});
    options.helper = [] {
      return ChildCommand{.path = test::paths::built("bin/kiln-remote"),
                          .name = "remote helper"};
    };
    options.limits = {.whole = 3s};
    remote::Servers servers(options, counters);
    const auto get = [&](std::size_t number) {
      auto answer = std::make_shared<std::promise<remote::Answer>>();
      EXPECT_TRUE(servers.admit(number, remote::Use::kGet, remote::Method::kGet, {}));
      servers.server(number).get(
          {}, {}, [answer](remote::Answer got) { answer->set_value(std::move(got)); },
          servers.options().limits);
      return answer->get_future();
    };
    EXPECT_EQ(get(0).get().status, 404U);
    at.mount.hold();
    auto hangs = get(0);
    std::size_t asked = 0;
    while (hangs.wait_for(20ms) == std::future_status::timeout) {
      const auto began = Clock::now();
      EXPECT_EQ(get(1).get().status, 404U);
      EXPECT_LT(Clock::now() - began, 2s);
      ++asked;
    }
    EXPECT_EQ(hangs.get().end, remote::TransferEnd::kHelper);
    EXPECT_EQ(web.heads().size(), asked);
    EXPECT_GT(asked, 20U);
  });
}

}  // namespace
}  // namespace kiln
