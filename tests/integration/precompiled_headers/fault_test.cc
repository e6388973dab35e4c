// Precompiled headers that are damaged, unfinished, another user's or elsewhere are not
// used; who lacks room, address space or its life loses nothing but time.

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "build/precompiled_headers.h"
#include "build/precompiled_store.h"
#include "build/request_keys.h"
#include "tests/integration/precompiled_headers/fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/namespaces.h"
#include "tests/support/processes.h"

namespace kiln {
namespace {

/// While one exists, what this process starts has that limit.
class ProcessLimit {
 public:
  ProcessLimit(__rlimit_resource which, rlim_t limit) : which_(which) {
    ::getrlimit(which_, &before_);
    const rlimit now{limit, before_.rlim_max};
    ::setrlimit(which_, &now);
  }
  ProcessLimit(const ProcessLimit&) = delete;
  ProcessLimit& operator=(const ProcessLimit&) = delete;
  ~ProcessLimit() { ::setrlimit(which_, &before_); }

 private:
  const __rlimit_resource which_;
  rlimit before_{};
};

TEST_F(PrecompiledHeadersTest, ADamagedOneIsNotUsedAndRemoved) {
  const auto damages = std::to_array<void (*)(const fs::path&)>({
      [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); },
      [](const fs::path& file) { fs::resize_file(file, 0); },
      [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) + 1); },
      [](const fs::path& file) {
        std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
        stream.seekg(static_cast<std::streamoff>(fs::file_size(file) / 2));
        const char byte = static_cast<char>(stream.get());
        stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2));
        stream.put(static_cast<char>(byte ^ 1));
      },
  });
  for (std::size_t i = 0; i < damages.size(); ++i) {
    service_ = nullptr;
    fs::remove_all(root_);
    start();
    const fs::path file = make_one();
    fs::permissions(file, fs::perms::owner_all);
    damages[i](file);
    expect_equal(fetch(2), source(2));
    EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U) << i;
    EXPECT_EQ(count(Counter::kWorkerCrashed), 0U) << i;
    EXPECT_FALSE(fs::exists(file)) << i;
    fetch(3);
    expect_equal(fetch(4), source(4));
    EXPECT_EQ(count(Counter::kPrecompiledMade), 2U) << "it is made again";
  }
}

TEST_F(PrecompiledHeadersTest, AWorkerThatDiesFromOutsideIsNoFaultOfTheOneItUses) {
  const fs::path file = make_one();
  const fs::path refused = file.parent_path().native() + ".refused";
  const auto request = test::keyed(*service_, Request::from_source(source(2))).value();
  const auto job = RequestKeys::job(request).value();
  const PrecompiledHeaders headers(service_->cache(), OwnFolder(root_ / "pch"),
                                   kLimitBytes);
  Error error{ErrorCode::kWorkerCrashed, "signal 9", true};
  int runs = 0;
  const auto die = [&](const compile::CompileJob&) -> Result<compile::CompileOutput> {
    ++runs;
    return tl::unexpected(error);
  };
  EXPECT_EQ(headers.compile(request, job, die).error().message, "signal 9");
  EXPECT_EQ(runs, 1) << "the pool has tried twice";
  EXPECT_FALSE(fs::exists(refused));
  EXPECT_TRUE(fs::exists(file));
  error.from_outside = false;
  EXPECT_FALSE(headers.compile(request, job, die));
  EXPECT_EQ(runs, 3) << "with it and without";
  EXPECT_TRUE(fs::exists(refused));
}

TEST_F(PrecompiledHeadersTest, AMakerThatDiesFromOutsideIsNoFaultOfTheHeaders) {
  fetch(0);  // from now on one is wanted
  const auto request = test::keyed(*service_, Request::from_source(source(1))).value();
  const auto job = RequestKeys::job(request).value();
  const PrecompiledHeaders headers(service_->cache(), OwnFolder(root_ / "pch"),
                                   kLimitBytes);
  EXPECT_FALSE(headers.compile(
      request, job, [&](const compile::CompileJob&) -> Result<compile::CompileOutput> {
        return tl::unexpected(Error{ErrorCode::kWorkerCrashed, "signal 9", true});
      }));
  for (const auto& entry : fs::directory_iterator(root_ / "pch"))
    EXPECT_NE(entry.path().extension(), ".refused");
}

TEST_F(PrecompiledHeadersTest, ADamagedRecordIsNone) {
  const fs::path file = make_one();
  fs::resize_file(file.parent_path() / "record", 100);
  expect_equal(fetch(2), source(2));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << "by make_one()";
}

TEST_F(PrecompiledHeadersTest, OneThatOthersCanWriteIsNotUsed) {
  const fs::path file = make_one();
  for (const fs::path& path :
       {file, file.parent_path(), file.parent_path() / "record", root_ / "pch"}) {
    const auto before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
    start();
    fetch(static_cast<int>(path.native().size()));
    EXPECT_EQ(count(Counter::kPrecompiledUsed), 0U) << path;
    EXPECT_GE(count(Counter::kUntrusted) + count(Counter::kCompiled), 1U) << path;
    fs::permissions(path, before);
  }
  start();
  fetch(2);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
}

TEST_F(PrecompiledHeadersTest, OneOfAnotherPlaceOfNvrtcIsNotUsed) {
  const fs::path file = make_one();
  const PrecompiledStore store(OwnFolder(root_ / "pch"), kLimitBytes);
  const auto key = Digest::from_hex(file.parent_path().filename().native());
  ASSERT_TRUE(key);
  auto stored = store.find(*key);
  ASSERT_TRUE(stored);
  const auto again = store.new_file();
  ASSERT_TRUE(again) << again.error().message;
  fs::copy_file(file, *again);
  stored->file.path = *again;
  stored->file.nvrtc_address += 4096;
  fs::remove_all(file.parent_path());
  ASSERT_TRUE(store.publish(*key, *stored));
  expect_equal(fetch(2), source(2));
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U);
  EXPECT_THAT(headers_in(root_), SizeIs(1)) << "it fits other processes";
}

TEST_F(PrecompiledHeadersTest, AnUnfinishedOneIsNeverUsed) {
  const PrecompiledStore store(OwnFolder(root_ / "pch"), kLimitBytes);
  const auto file = store.new_file();
  ASSERT_TRUE(file) << file.error().message;
  test::write_text(*file, "half");  // its maker was killed
  expect_equal(fetch(0), source(0));
  make_one();
  expect_equal(fetch(2), source(2));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 2U);
}

TEST_F(PrecompiledHeadersTest, WithoutRoomForOneNothingIsLostButTime) {
  fetch(0);
  auto small = std::make_optional<ProcessLimit>(RLIMIT_FSIZE, 1U << 20U);
  start();  // its workers have that limit
  const Fetched fetched = fetch(1);
  small.reset();
  expect_equal(fetched, source(1));
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U);
  EXPECT_THAT(headers_in(root_), IsEmpty());
}

TEST_F(PrecompiledHeadersTest, OnADiskWithLittleRoomThereIsNoneAndAllIsStored) {
  const auto without = plain(source(1));
  service_ = nullptr;
  test::in_mount_namespace([&] {
    if (!test::mount_small_disk(root_, "size=64m"))
      return 2;
    start();
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(fetch(i).not_stored);
    EXPECT_THAT(headers_in(root_), IsEmpty());
    EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U);
    EXPECT_TRUE(std::ranges::equal(fetch(1).object->payload(), without->payload()));
    service_ = nullptr;
    return 0;
  });
}

/// All other addresses cannot be taken, so NVRTC's are anywhere.
TEST_F(PrecompiledHeadersTest, AProcessWithLittleAddressSpaceCompilesWithout) {
  fetch(0);
  const ProcessLimit little(RLIMIT_AS, 4ULL << 30U);
  start();  // its workers have that limit
  for (int i = 1; i < 4; ++i) expect_equal(fetch(i), source(i));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 0U);
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U) << "asked once in ten minutes";
}

// --- many, and the killed --------------------------------------------------------

TEST_F(PrecompiledHeadersTest, Of64ProcessesAtOnceEachBuildsAndOneMakesIt) {
  fetch(0);
  service_ = nullptr;
  std::vector<test::ChildProcess> children;
  for (int i = 1; i <= 64; ++i) {
    children.emplace_back([this, i] {
      start();
      fetch(i);
      service_ = nullptr;  // writes its counters
      return HasFailure() ? 1 : 0;
    });
  }
  for (auto& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_THAT(headers_in(root_), SizeIs(1));
  start();
  const auto counters = service_->cache().stats().value().counters;
  EXPECT_EQ(counters.at("pch_made"), 1U);
  EXPECT_EQ(counters.at("compiled"), 65U);
  EXPECT_GT(counters.at("pch_used"), 55U) << "decided before it was their turn";
  EXPECT_EQ(counters.count("pch_refused"), 0U);
  for (const int i : {1, 20, 64}) {
    EXPECT_EQ(fetch(i).outcome, FetchOutcome::kHit);
    expect_equal(fetch(i), source(i));
  }
}

TEST_F(PrecompiledHeadersTest, WhoIsKilledWhileItMakesOneLosesNobodyAnything) {
  const auto age = [](const fs::path& path, std::chrono::minutes by) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - by);
  };
  std::mt19937 random(1);
  for (int i = 0; i < 8; ++i) {
    service_ = nullptr;
    fs::remove_all(root_);
    start();
    fetch(0);
    service_ = nullptr;
    test::ChildProcess child([this] {
      start();
      fetch(1);
      return 0;
    });
    EXPECT_TRUE(test::eventually(std::chrono::seconds(60), [this] {
      return fs::exists(root_ / "pch" / "new") && !fs::is_empty(root_ / "pch" / "new");
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
    child.signal(SIGKILL);
    child.wait();
    const bool made = !headers_in(root_).empty();
    start();
    expect_equal(fetch(2), source(2));
    expect_equal(fetch(3), source(3));
    EXPECT_EQ(count(Counter::kPrecompiledUsed), made ? 2U : 0U);
    EXPECT_EQ(count(Counter::kPrecompiledMade), 0U) << "not within ten minutes";
    if (made)
      continue;
    for (const auto& entry : fs::directory_iterator(root_ / "pch")) {
      if (entry.path().extension() == ".taken")
        age(entry, std::chrono::minutes(11));
    }
    for (const auto& entry : fs::directory_iterator(root_ / "pch" / "new"))
      age(entry, std::chrono::minutes(61));
    fetch(4);
    expect_equal(fetch(5), source(5));
    EXPECT_EQ(count(Counter::kPrecompiledMade), 1U);
    EXPECT_TRUE(fs::is_empty(root_ / "pch" / "new"));
  }
}

}  // namespace
}  // namespace kiln
