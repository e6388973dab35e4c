// Compilers that hang, die and lie. Each time: a clear error in bounded time, and the
// next request is served.

#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "device/cubin.h"
#include "tests/fault/compile_faults.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/namespaces.h"
#include "tests/support/processes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::compile {
namespace {

/// Served by the same pool: what a pool that was harmed must still be able to do. The
/// fake keeps its mode, so this asks it a thing that every mode answers.
void expect_still_serving(WorkerPool& pool) {
  const auto description = pool.describe(test::fake_nvrtc());
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->major, 13);
}

TEST(FakeNvrtc, LeftAloneItIsHonest) {
  WorkerPool pool(options_with(""));
  auto wanted = small_job();
  wanted.source += "template <typename T>\n__global__ void k(T* x) {}\n";
  wanted.name_expressions = {"k<float>"};
  const auto output = pool.compile(wanted, {});
  ASSERT_TRUE(output) << output.error().message;
  const std::vector<std::string_view> entries{"scale", "_Z1kv"};
  const auto checked = device::check_image(output->image, wanted.target, entries);
  EXPECT_TRUE(checked) << checked.error().message;
  EXPECT_THAT(output->nvrtc.build_id, Not(IsEmpty()));
  EXPECT_THAT(output->builtins.build_id, IsEmpty());

  wanted.target.kind = device::ImageKind::kPtx;
  wanted.options = {"--gpu-architecture=compute_80"};
  const auto ptx = pool.compile(wanted, {});
  EXPECT_TRUE(ptx) << ptx.error().message;
}

TEST_F(CompileFault, fault_06_AHangEndsAtTheTimeLimit) {
  const test::TempDir root;
  auto options = options_with("hang");
  options.reproductions = root.path() / "repro";
  WorkerPool pool(options);
  auto wanted = small_job();
  wanted.time_limit = 500ms;
  const auto begin = Clock::now();
  const auto error = error_of(pool.compile(wanted, {}));
  EXPECT_LT(Clock::now() - begin, kBounded);
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_THAT(error.message, AllOf(HasSubstr("while compiling"), HasSubstr("0.5 s"),
                                   HasSubstr("saved in " + root.path().native())));
  expect_still_serving(pool);
}

/// What a compiler with that fault makes of a job; afterwards the pool goes on.
Result<CompileOutput> made_by(const std::string& mode,
                              const CompileJob& wanted = small_job()) {
  WorkerPool pool(options_with(mode));
  auto output = pool.compile(wanted, {});
  expect_still_serving(pool);
  return output;
}

TEST_F(CompileFault, fault_07_ACrashIsContainedAndNamed) {
  EXPECT_THAT(made_by("crash"),
              test::IsError(ErrorCode::kWorkerCrashed, HasSubstr("signal 11")));
}

TEST_F(CompileFault, fault_07_ACompilerThatExitsIsACrashWithItsStatus) {
  EXPECT_THAT(made_by("exit"), test::IsError(ErrorCode::kWorkerCrashed,
                                             HasSubstr("exited with status 7")));
}

TEST_F(CompileFault, fault_07_SuccessWithoutAnImageIsAFailure) {
  EXPECT_THAT(made_by("empty"),
              test::IsError(ErrorCode::kCompileFailed, HasSubstr("no image")));
}

TEST_F(CompileFault, fault_07_AnImageOfAnotherArchitectureIsAFailure) {
  EXPECT_THAT(made_by("wrong-arch"),
              test::IsError(ErrorCode::kCompileFailed,
                            AllOf(HasSubstr("sm_75"), HasSubstr("sm_80"))));
}

TEST_F(CompileFault, fault_07_ALoweredNameThatIsNotInTheImageIsAFailure) {
  auto wanted = small_job();
  wanted.name_expressions = {"k<float>"};
  EXPECT_THAT(made_by("no-entry", wanted),
              test::IsError(ErrorCode::kCompileFailed, HasSubstr("k<float>")));
}

TEST_F(CompileFault, fault_06_AMemoryHogIsKilledAtItsLimit) {
  WorkerPool pool(options_with("hoard"));
  auto wanted = small_job();
  wanted.memory_limit_bytes = 256U << 20U;
  const auto begin = Clock::now();
  const auto error = error_of(pool.compile(wanted, {}));
  EXPECT_LT(Clock::now() - begin, kBounded);
  EXPECT_EQ(error.code, ErrorCode::kResourceLimit);
  EXPECT_THAT(error.message, HasSubstr("256 MiB"));
  expect_still_serving(pool);
}

TEST_F(CompileFault, fault_06_AMemoryHogEndsAtItsLimitWhereProcIsMissing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's heap counts nothing";
#endif
  test::in_mount_namespace([&] {
    if (::mount("none", "/proc", "tmpfs", 0, nullptr) != 0)
      return test::kImpossible;
    WorkerPool pool(options_with("hoard"));
    auto wanted = small_job();
    wanted.memory_limit_bytes = 256U << 20U;
    const auto error = error_of(pool.compile(wanted, {}));
    EXPECT_EQ(error.code, ErrorCode::kResourceLimit) << error.message;
    EXPECT_THAT(error.message, HasSubstr("256 MiB"));
    expect_still_serving(pool);
    return 0;
  });
}

TEST(CompileWorker, AJobThatIsTooLargeIsAnErrorAndNotARefusalOfItsSource) {
  auto options = options_with("");
  options.max_job_bytes = 10'000;
  int refused = 0;
  options.on_refused = [&refused] { ++refused; };
  WorkerPool pool(options);
  auto large = small_job();
  large.source += std::string(10'000, ' ');
  bool begun = false;
  for (int i = 0; i < 3; ++i) {
    const auto error =
        error_of(pool.compile(large, {}, [&begun](BuildPhase) { begun = true; }));
    EXPECT_EQ(error.code, ErrorCode::kResourceLimit);
    EXPECT_THAT(error.message, HasSubstr("over the limit of 10000"));
  }
  EXPECT_EQ(refused, 0);
  EXPECT_FALSE(begun) << "it would count as one that lost its worker";
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
  EXPECT_TRUE(pool.compile(small_job(), {}));
}

TEST_F(CompileFault, fault_07_ManyCrashesAndHangsLeaveNoProcessAndNoDescriptor) {
  const auto count_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = count_descriptors();
  {
    WorkerPool pool(options_with("crash", 4));
    test::in_threads(8, [&pool](int i) {
      for (int j = 0; j < 5; ++j) {
        auto wanted = small_job();
        wanted.source += "// " + std::to_string(i * 100 + j) + "\n";
        EXPECT_EQ(error_of(pool.compile(wanted, {})).code, ErrorCode::kWorkerCrashed);
      }
    });
  }
  EXPECT_EQ(count_descriptors(), before);
  EXPECT_THAT(test::children_of(::getpid()), IsEmpty());
}

}  // namespace
}  // namespace kiln::compile
