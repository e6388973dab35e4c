// Real NVRTC through real workers: what comes back, and what ends a build.

#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "compile/pool/worker_pool.h"
#include "compile/worker/nvrtc_compile.h"
#include "device/cubin.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"
#include "util/elf.h"

namespace kiln::compile {
namespace {

class CompileWorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (nvrtc_.nvrtc.empty())
      GTEST_SKIP() << "no NVRTC on this machine";
  }

  [[nodiscard]] CompileJob job(std::string source) const {
    return test::job_for(nvrtc_, std::move(source),
                         {.architecture = {{8, 0}}, .kind = device::ImageKind::kCubin});
  }

  static PoolOptions one_worker() {
    PoolOptions options;
    options.max_workers = 1;
    return options;
  }

  /// The phases that a build of `wanted` goes through.
  static std::vector<BuildPhase> phases_of(WorkerPool& pool, const CompileJob& wanted) {
    std::vector<BuildPhase> phases;
    const auto output = pool.compile(
        wanted, {}, [&phases](BuildPhase phase) { phases.push_back(phase); });
    EXPECT_TRUE(output) << output.error().message;
    return phases;
  }

  const NvrtcPaths nvrtc_ = test::real_nvrtc();
};

constexpr const char* kTemplateKernel =
    "template <typename T> __global__ void twice(T* x) {\n"
    "  __shared__ T row[64];\n"
    "  row[threadIdx.x] = x[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  x[threadIdx.x] = row[63 - threadIdx.x];\n"
    "}\n";

TEST_F(CompileWorkerTest, ABuildGivesImagePtxResourcesAndWhatWasLoaded) {
  WorkerPool pool(one_worker());
  const auto output = test::value_of(pool.compile(job(test::kSmallKernel), {}));
  const std::vector<std::string_view> entries{"scale"};
  EXPECT_TRUE(device::check_image(output.image, job("").target, entries));
  EXPECT_THAT(output.ptx, HasSubstr(".visible .entry scale("));
  ASSERT_THAT(output.resources, SizeIs(1));
  EXPECT_EQ(output.resources[0].entry, "scale");
  EXPECT_GT(output.resources[0].registers, 0U);
  EXPECT_EQ(output.nvrtc.build_id, read_build_id(nvrtc_.nvrtc).value());
  EXPECT_EQ(output.builtins.build_id, read_build_id(nvrtc_.builtins).value());
  EXPECT_EQ(output.files, FileReport());
}

TEST_F(CompileWorkerTest, NameExpressionsComeBackLowered) {
  WorkerPool pool(one_worker());
  auto wanted = job(kTemplateKernel);
  wanted.name_expressions = {"twice<float>", "twice<double>"};
  const auto output = test::value_of(pool.compile(wanted, {}));
  EXPECT_THAT(output.lowered_names,
              testing::ElementsAre(LoweredName{"twice<float>", "_Z5twiceIfEvPT_"},
                                   LoweredName{"twice<double>", "_Z5twiceIdEvPT_"}));
  ASSERT_THAT(output.resources, SizeIs(2));
  EXPECT_THAT((std::vector{output.resources[0].static_shared_bytes,
                           output.resources[1].static_shared_bytes}),
              testing::UnorderedElementsAre(256, 512));
}

TEST_F(CompileWorkerTest, TheImageIsWhatNvrtcGivesInProcess) {
  WorkerPool pool(one_worker());
  const auto wanted = job(test::kSmallKernel);
  const auto output = test::value_of(pool.compile(wanted, {}));
  const auto nvrtc = test::value_of(open_nvrtc(nvrtc_));
  const auto here = test::value_of(
      compile_here(*nvrtc, wanted, std::chrono::steady_clock::now() + 60s, {}));
  EXPECT_EQ(output.image, here.image);
}

TEST_F(CompileWorkerTest, ASourceErrorIsAValueWithTheWholeLogAndCostsNoWorker) {
  WorkerPool pool(one_worker());
  EXPECT_THAT(
      pool.compile(job("__global__ void k() { undeclared = 1; }\nint 1wrong;\n"), {}),
      test::IsError(ErrorCode::kCompileFailed,
                    testing::AllOf(HasSubstr("undeclared"), HasSubstr("kernel.cu(2)"),
                                   HasSubstr("sm_80"))));
  EXPECT_THAT(phases_of(pool, job(test::kSmallKernel)),
              Not(Contains(BuildPhase::kStarting)));
}

TEST_F(CompileWorkerTest, AnUnknownOptionIsTheCallersFault) {
  WorkerPool pool(one_worker());
  auto wanted = job(test::kSmallKernel);
  wanted.options.emplace_back("--no-such-option");
  EXPECT_THAT(pool.compile(wanted, {}), test::IsError(ErrorCode::kInvalidArgument,
                                                      HasSubstr("--no-such-option")));
}

TEST_F(CompileWorkerTest, ANulInTheSourceIsRefusedAndNotSilentlyCutOff) {
  WorkerPool pool(one_worker());
  EXPECT_THAT(
      pool.compile(job(std::string(test::kSmallKernel) + '\0' + "syntax error"), {}),
      test::IsError(ErrorCode::kInvalidArgument));
}

TEST_F(CompileWorkerTest, AnNvrtcThatIsNotThereIsNamed) {
  WorkerPool pool(one_worker());
  auto wanted = job(test::kSmallKernel);
  wanted.nvrtc.nvrtc = "/no/such/libnvrtc.so.13";
  EXPECT_THAT(
      pool.compile(wanted, {}),
      test::IsError(ErrorCode::kUnavailable, HasSubstr("/no/such/libnvrtc.so.13")));
  EXPECT_TRUE(pool.compile(job(test::kSmallKernel), {}));

  wanted.nvrtc.nvrtc = "libnvrtc.so.13";
  EXPECT_THAT(pool.compile(wanted, {}), test::IsError(ErrorCode::kInvalidArgument));

  wanted.nvrtc.nvrtc = "/proc/self/exe";
  EXPECT_EQ(pool.compile(wanted, {}).error().code, ErrorCode::kUnavailable);
}

TEST_F(CompileWorkerTest, OtherBuiltinsOnTheLoaderPathDoNotReplaceTheNamedOnes) {
  const auto id = read_build_id(nvrtc_.builtins).value();
  const test::TempDir folder;
  const auto other_builtins = folder.path() / nvrtc_.builtins.filename();
  std::filesystem::copy_file(nvrtc_.builtins, other_builtins);
  test::change_build_id(other_builtins);

  auto options = one_worker();
  options.environment = {"LD_LIBRARY_PATH=" + folder.path().native()};
  WorkerPool pool(options);
  auto wanted = job(test::kSmallKernel);
  const auto named = test::value_of(pool.compile(wanted, {}));
  EXPECT_EQ(named.builtins.build_id, id);

  // Where none are named, the loader's choice is found out.
  WorkerPool other(options);
  wanted.nvrtc.builtins.clear();
  const auto output = test::value_of(other.compile(wanted, {}));
  EXPECT_EQ(output.nvrtc.build_id, read_build_id(nvrtc_.nvrtc).value());
  // That of 13.5 is beside the library: it has a DT_RPATH.
  const bool is_beside = output.builtins.path.parent_path() != folder.path();
  EXPECT_TRUE(!is_beside || output.builtins.path == nvrtc_.builtins);
  EXPECT_EQ(output.builtins.build_id == id, is_beside);
  EXPECT_THAT(output.builtins.build_id, SizeIs(id.size()));
}

TEST_F(CompileWorkerTest, AWorkerNeedsNoMoreStackThanItsHostHas) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_STACK, &before), 0);
  const rlimit small{.rlim_cur = 64U << 10U, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_STACK, &small), 0);
  Result<CompileOutput> output = fail(ErrorCode::kNotFound, "not built");
  // This thread's own stack may not grow now.
  std::thread([&] {
    WorkerPool pool(one_worker());
    output = pool.compile(job(kTemplateKernel), {});
  }).join();
  ASSERT_EQ(::setrlimit(RLIMIT_STACK, &before), 0);
  EXPECT_TRUE(output) << output.error().message;
}

TEST_F(CompileWorkerTest, DescribeSaysVersionAndArchitectures) {
  WorkerPool pool(one_worker());
  const auto description = test::value_of(pool.describe(nvrtc_));
  EXPECT_GE(description.major, 12);
  EXPECT_THAT(description.architectures, Contains(device::ComputeCapability{9, 0}));
  EXPECT_EQ(description.nvrtc.build_id, read_build_id(nvrtc_.nvrtc).value());
  EXPECT_EQ(pool.describe({"/no/such/nvrtc", ""}).error().code,
            ErrorCode::kUnavailable);
}

TEST_F(CompileWorkerTest, ALongBuildEndsAtItsTimeLimit) {
  const test::TempDir root;
  auto options = one_worker();
  options.reproductions = root.path() / "repro";
  WorkerPool pool(options);
  auto wanted = job(test::endless_kernel());
  wanted.time_limit = 2s;
  const auto begin = std::chrono::steady_clock::now();
  const auto output = pool.compile(wanted, {});
  ASSERT_THAT(output, test::IsError(ErrorCode::kTimeout));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_THAT(output.error().message, HasSubstr("while compiling"));
  EXPECT_THAT(output.error().message, HasSubstr((root.path() / "repro").native()));
  EXPECT_THAT(root.files(), Not(IsEmpty()));
  EXPECT_TRUE(pool.compile(job(test::kSmallKernel), {}));
}

TEST_F(CompileWorkerTest, AStopEndsABuildInNvrtc) {
  WorkerPool pool(one_worker());
  std::stop_source stop;
  std::atomic<bool> compiling = false;
  std::thread canceller([&] {
    EXPECT_TRUE(test::eventually(30s, [&] { return compiling.load(); }));
    std::this_thread::sleep_for(200ms);
    stop.request_stop();
  });
  const auto output = pool.compile(
      job(test::endless_kernel()), stop.get_token(), [&](BuildPhase phase) {
        compiling = compiling || phase == BuildPhase::kCompiling;
      });
  canceller.join();
  EXPECT_THAT(output, test::IsError(ErrorCode::kCancelled));
  EXPECT_TRUE(pool.compile(job(test::kSmallKernel), {}));
}

TEST_F(CompileWorkerTest, AWorkerOutlivesTheThreadThatAskedForIt) {
  WorkerPool pool(one_worker());
  std::thread([&] { EXPECT_TRUE(pool.compile(job(test::kSmallKernel), {})); }).join();
  std::this_thread::sleep_for(100ms);
  EXPECT_THAT(phases_of(pool, job(test::kSmallKernel)),
              Not(Contains(BuildPhase::kStarting)));
}

TEST_F(CompileWorkerTest, TwoPoolsBuildAtOnceWithinTheirBounds) {
  std::atomic<int> slots = 0;
  std::atomic<int> most = 0;
  PoolOptions options;
  options.max_workers = 2;
  options.acquire_slot = [&](const std::stop_token&) -> Result<std::shared_ptr<void>> {
    const int now = ++slots;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    return std::shared_ptr<void>(&slots, [](std::atomic<int>* held) { --*held; });
  };
  WorkerPool a(options);
  WorkerPool b(options);
  test::in_threads(12, [&](int i) {
    auto wanted = job("extern \"C\" __global__ void k" + std::to_string(i) + "() {}\n");
    const auto output = (i % 2 == 0 ? a : b).compile(wanted, {});
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_EQ(output->resources.at(0).entry, "k" + std::to_string(i));
  });
  EXPECT_EQ(slots, 0);
  EXPECT_LE(most, 4);
}

/// Runs `body` in a forked child, which never returns from it.
pid_t in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

TEST_F(CompileWorkerTest, AForkedChildBuildsWithWorkersOfItsOwn) {
  WorkerPool pool(one_worker());
  ASSERT_TRUE(pool.compile(job(test::kSmallKernel), {}));
  const auto mine = test::children_of(::getpid());
  const pid_t child = in_child([&] {
    const bool built = pool.compile(job(test::kSmallKernel), {}).has_value();
    const bool own = test::children_of(::getpid()).size() == 1;
    ::_exit(built && own ? 0 : 1);
  });
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::children_of(::getpid()), mine);
  EXPECT_THAT(phases_of(pool, job(test::kSmallKernel)),
              Not(Contains(BuildPhase::kStarting)));
}

}  // namespace
}  // namespace kiln::compile
