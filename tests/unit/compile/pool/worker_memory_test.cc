// What memory there is for workers, by files that the test writes.

#include "compile/pool/worker_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

#include "compile/pool/worker_pool.h"
#include "tests/support/in_threads.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/compile/pool/scripted_worker.h"

namespace kiln::compile {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;

class WorkerMemoryTest : public testing::Test {
 protected:
  void write(const std::filesystem::path& file, const std::string& text) const {
    const auto path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void write_available(std::uint64_t mib) const {
    write("proc/meminfo", "MemTotal:       99999999 kB\nMemAvailable:   " +
                              std::to_string(mib << 10U) + " kB\nBuffers:  1 kB");
  }
  void write_group(const std::string& folder, const std::string& limit,
                   std::uint64_t used_mib, std::uint64_t cache_mib = 0) const {
    const auto group = "sys/fs/cgroup/" + folder;
    write(group + "/memory.max", limit);
    write(group + "/memory.current", std::to_string(used_mib * kMiB));
    write(group + "/memory.stat",
          "anon 5\ninactive_file " + std::to_string(cache_mib * kMiB));
  }
  /// In MiB.
  [[nodiscard]] std::optional<std::uint64_t> available() const {
    const auto bytes = available_memory(root_.path());
    return bytes ? std::optional(*bytes / kMiB) : std::nullopt;
  }

  const test::TempDir root_;
};

TEST_F(WorkerMemoryTest, WithoutACgroupTheMachinesCounts) {
  EXPECT_EQ(available(), std::nullopt);
  EXPECT_EQ(WorkerMemory(root_.path()).room(), std::numeric_limits<unsigned>::max());
  write_available(3000);
  EXPECT_EQ(available(), 3000U);
  EXPECT_EQ(WorkerMemory(root_.path()).room(), 5U);
}

TEST_F(WorkerMemoryTest, OfAllAncestorsTheOneWithTheLeastRoomCounts) {
  write_available(90'000);
  write("proc/self/cgroup", "0::/pod/job/step");
  write_group("pod", std::to_string(8000 * kMiB), 7000);
  write_group("pod/job", "max", 7000);
  write_group("pod/job/step", std::to_string(4000 * kMiB), 100);
  EXPECT_EQ(available(), 1000U);
  write_group("pod", std::to_string(8000 * kMiB), 100);
  EXPECT_EQ(available(), 3900U);
  write("sys/fs/cgroup/pod/memory.high", std::to_string(2100 * kMiB));
  EXPECT_EQ(available(), 2000U) << "above it the kernel slows everybody down";
  write_available(700);
  EXPECT_EQ(available(), 700U);
}

TEST_F(WorkerMemoryTest, PageCacheThatCanBeGivenBackIsFree) {
  write("proc/self/cgroup", "0::/job");
  write_group("job", std::to_string(1000 * kMiB), 900, 700);
  EXPECT_EQ(available(), 800U);
  write_group("job", std::to_string(1000 * kMiB), 1200, 100);
  EXPECT_EQ(available(), 0U) << "over its limit";
  EXPECT_EQ(WorkerMemory(root_.path()).room(), 1U);
}

TEST_F(WorkerMemoryTest, Version1IsReadToo) {
  write("proc/self/cgroup", "9:cpu:/other\n4:hugetlb,memory:/docker/job\n0::/");
  const std::string job = "sys/fs/cgroup/memory/docker/job/";
  write(job + "memory.limit_in_bytes", std::to_string(600 * kMiB));
  write(job + "memory.usage_in_bytes", std::to_string(500 * kMiB));
  write(job + "memory.stat",
        "inactive_file 1\ntotal_inactive_file " + std::to_string(300 * kMiB));
  EXPECT_EQ(available(), 400U);
  // In a container the root of the mount is the container's own group.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(300 * kMiB));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(100 * kMiB));
  EXPECT_EQ(available(), 200U);
}

TEST_F(WorkerMemoryTest, NonsenseIsNoLimit) {
  write_available(3000);
  write("proc/self/cgroup", "0::/job\nnonsense\n:\n4:memory");
  for (const char* const text :
       {"", "max", "-1", "1e9", "0x10", "99999999999999999999"}) {
    write_group("job", text, 1);
    EXPECT_EQ(available(), 3000U) << text;
  }
  write_group("job", std::to_string(1000 * kMiB), 100);
  std::filesystem::remove(root_.path() / "sys/fs/cgroup/job/memory.current");
  EXPECT_EQ(available(), 3000U) << "nobody says how much is used";
}

TEST_F(WorkerMemoryTest, WorkersThatLiveAreNotSubtractedAndTheLargestCounts) {
  write_available(4096);
  WorkerMemory memory(root_.path());
  EXPECT_EQ(memory.room(), 8U);
  {
    WorkerMemory::Share first(memory);
    first.hold(200 * kMiB);
    WorkerMemory::Share second(std::move(first));
    second.hold(300 * kMiB);
    write_available(4096 - 300);
    EXPECT_EQ(memory.room(), 8U) << "one lives, and there is room for seven more";
    second.hold(2048 * kMiB);
    write_available(2048);
    EXPECT_EQ(memory.room(), 2U);
  }
  EXPECT_EQ(memory.room(), 1U) << "as large as the last one may the next be";
}

TEST_F(WorkerMemoryTest, ThisMachineTells) {
  EXPECT_GT(available_memory().value_or(0), 0U);
  EXPECT_GE(WorkerMemory::of_process().room(), 1U);
}

TEST_F(WorkerMemoryTest, AForkedChildCountsItsOwnWorkersAlone) {
  WorkerMemory* const parents = &WorkerMemory::of_process();
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(&WorkerMemory::of_process() != parents ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(&WorkerMemory::of_process(), parents);
}

TEST_F(WorkerMemoryTest, APoolRunsNoMoreWorkersThanThereIsRoomFor) {
  write("proc/self/cgroup", "0::/job");
  write_group("job", std::to_string(600 * kMiB), 20);
  WorkerMemory memory(root_.path());
  ScriptedWorker scripts;
  PoolOptions options;
  options.memory = &memory;
  options.max_workers = LazyCount(8).bounded_by([&memory] { return memory.room(); });
  // A worker that fails where another one runs.
  options.worker.path = scripts.script(
      scripts.say_hello() + "mkdir " + (scripts.folder() / "busy").native() +
      " || exit 9\nsleep 0.05\nrmdir " + (scripts.folder() / "busy").native() + '\n' +
      scripts.send(Error{ErrorCode::kCompileFailed, "as it should"}) + "exit 0\n");
  WorkerPool pool(options);
  test::in_threads(8, [&](int i) {
    const CompileJob job{.label = "k",
                         .source = std::to_string(i),
                         .target = {{{9, 0}}, device::ImageKind::kPtx}};
    const auto output = pool.compile(job, {});
    ASSERT_FALSE(output);
    EXPECT_EQ(output.error().code, ErrorCode::kCompileFailed) << output.error().message;
  });
}

}  // namespace
}  // namespace kiln::compile
