// Which files a real NVRTC in a real worker asked the system for.

#include <poll.h>
#include <sys/inotify.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "compile/pool/worker_pool.h"
#include "key/header_scan.h"
#include "key/opened_files.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"
#include "toolchain/linker.h"
#include "util/unique_fd.h"

namespace kiln::compile {
namespace {

class CompileFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (nvrtc_.nvrtc.empty())
      GTEST_SKIP() << "no NVRTC on this machine";
  }

  [[nodiscard]] CompileJob job(std::string source) const {
    return test::job_for(nvrtc_, std::move(source));
  }

  static PoolOptions one_worker() {
    PoolOptions options;
    options.max_workers = 1;
    return options;
  }

  const NvrtcPaths nvrtc_ = test::real_nvrtc();
};

TEST_F(CompileFilesTest, EveryHeaderThatNvrtcOpenedIsReported) {
  const auto roots = device::include_roots_of({nvrtc_.nvrtc, nvrtc_.nvrtc});
  if (roots.empty())
    GTEST_SKIP() << "this NVRTC came without headers";
  const test::TempDir folder;
  std::ofstream(folder.path() / "computed.h") << "#define ZERO 0.0f\n";
  WorkerPool pool(one_worker());
  auto wanted =
      job("#include <cuda_bf16.h>\n#define H <computed.h>\n#include H\n#include "
          "\"mine.h\"\n"
          "extern \"C\" __global__ void k(__nv_bfloat16* x) { *x = ZERO; }\n");
  wanted.headers = {{"mine.h", "// in memory\n"}};
  wanted.options.push_back("--include-path=" + folder.path().native());
  for (const auto& root : roots)
    wanted.options.push_back("--include-path=" + root.native());
  const auto output = test::value_of(pool.compile(wanted, {}));
  std::vector<std::filesystem::path> files;
  for (const OpenedFile& file : output.files.opened) {
    files.push_back(file.path);
    EXPECT_EQ(file.stamp, FileStamps().of_readable(file.path.c_str())) << file.path;
  }
  EXPECT_THAT(files, Contains(roots.front() / "cuda_bf16.h"));
  EXPECT_THAT(files, Contains(folder.path() / "computed.h"));
  for (const auto& file : files) {
    EXPECT_TRUE(file.is_absolute()) << file;
    EXPECT_TRUE(std::filesystem::is_regular_file(file)) << file;
    EXPECT_EQ(std::count(files.begin(), files.end(), file), 1) << file;
    EXPECT_NE(file.filename(), "mine.h");
  }

  const auto next = pool.compile(job(test::kSmallKernel), {});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->files, FileReport()) << "the last build's files";
}

/// NVRTC's descriptor counts: a link leads to another folder while it compiles, and
/// back again before anybody looks.
TEST_F(CompileFilesTest, AHeaderThatWasAnotherFileWhileNvrtcReadItIsNotThatOfTheKey) {
  const test::TempDir folder;
  for (const char* const version : {"1", "2"}) {
    std::filesystem::create_directory(folder.path() / version);
    std::ofstream(folder.path() / version / "v.h") << "#define V " << version << "\n";
  }
  const auto current = folder.path() / "current";
  const auto turn_to = [&](const char* version) {
    std::filesystem::remove(current);
    std::filesystem::create_directory_symlink(folder.path() / version, current);
  };
  auto wanted = job("#include <v.h>\n__global__ void k(int* x) { *x = V; }\n");
  wanted.options.push_back("--include-path=" + current.native());
  key::SourceKeyInput input;
  input.source = wanted.source;
  input.include_dirs = {current};
  turn_to("1");
  const auto long_after = std::chrono::system_clock::now() + std::chrono::hours(1);
  const auto scan =
      test::value_of(key::HeaderScanner({}).scan(input, {}, {}, long_after));
  WorkerPool pool(one_worker());
  const auto reason_if_it_reads = [&](const char* version) -> std::string {
    turn_to(version);
    const auto output = pool.compile(wanted, {});
    turn_to("1");
    if (!output)
      return output.error().message;
    const auto unkeyed = key::find_unkeyed(
        *scan.headers, {output->files.opened, long_after, output->files.missed});
    return unkeyed ? unkeyed->reason : "";
  };
  EXPECT_EQ(reason_if_it_reads("2"), "changed since the key was made");
  EXPECT_EQ(reason_if_it_reads("1"), "");
}

/// A descriptor's stamp of when it was opened says nothing of a store before it is
/// read.
TEST_F(CompileFilesTest, AHeaderThatIsWrittenAfterNvrtcOpenedItIsNotThatOfTheKey) {
  const test::TempDir folder;
  const auto header = folder.path() / "v.h";
  std::ofstream(header) << "#define V 1\n";
  auto wanted = job(test::slow_kernel(150) +  // a second or two
                    "#include <v.h>\n__global__ void k(int* x) { *x = V; }\n");
  wanted.options.push_back("--include-path=" + folder.path().native());
  key::SourceKeyInput input;
  input.source = wanted.source;
  input.include_dirs = {folder.path()};
  const auto long_after = std::chrono::system_clock::now() + std::chrono::hours(1);
  const auto scan =
      test::value_of(key::HeaderScanner({}).scan(input, {}, {}, long_after));
  const UniqueFd opens(::inotify_init1(IN_CLOEXEC));
  ASSERT_TRUE(opens);
  ASSERT_NE(::inotify_add_watch(opens.get(), header.c_str(), IN_OPEN), -1);
  std::thread writer([&] {
    pollfd opened{.fd = opens.get(), .events = POLLIN, .revents = 0};
    if (::poll(&opened, 1, 60'000) != 1)
      return;
    std::this_thread::sleep_for(
        std::chrono::milliseconds(100));                     // it asks for it again
    std::ofstream(header, std::ios::in) << "#define V 2\n";  // in place
  });
  WorkerPool pool(one_worker());
  const auto output = pool.compile(wanted, {});
  writer.join();
  ASSERT_TRUE(output) << output.error().message;
  const auto unkeyed = key::find_unkeyed(
      *scan.headers, {output->files.opened, long_after, output->files.missed});
  ASSERT_TRUE(unkeyed);
  EXPECT_EQ(unkeyed->reason, "changed since the key was made");
}

TEST_F(CompileFilesTest, EveryPlaceWhereNvrtcFoundNoHeaderIsReportedOnce) {
  const test::TempDir folder;
  const auto own = folder.path() / "own";
  std::filesystem::create_directories(own / "dir.h");
  WorkerPool pool(one_worker());
  auto wanted = job(
      "#define CAT(a) <a.h>\n#if __has_include(CAT(none)) || __has_include(<none.h>)\n"
      "#endif\n#if __has_include(\"sub/none.h\") || __has_include(<dir.h>)\n#endif\n"
      "extern \"C\" __global__ void k() {}\n");
  wanted.options.push_back("--include-path=" + own.native());
  const auto output = test::value_of(pool.compile(wanted, {}));
  EXPECT_THAT(output.files.missed,
              testing::ElementsAre(own / "none.h", "/sub/none.h", own / "sub/none.h",
                                   own / "dir.h"));
  EXPECT_THAT(output.files.opened, IsEmpty());
  EXPECT_TRUE(output.files.is_whole);
}

/// Workers that find a driver, which hangs, and no other.
class NoDriverTest : public CompileFilesTest {
 protected:
  NoDriverTest() {
    std::filesystem::copy_file(test::paths::kHangingDriver,
                               folder_.path() / "libcuda.so.1");
    options_ = one_worker();
    options_.environment = {"LD_LIBRARY_PATH=" + folder_.path().native(),
                            "TMPDIR=" + folder_.path().native()};
    options_.time_limit = std::chrono::seconds(20);
  }
  [[nodiscard]] bool is_driver_opened() const {
    return std::filesystem::exists(folder_.path() / "opened");
  }

  const test::TempDir folder_;
  PoolOptions options_;
};

TEST_F(NoDriverTest, NoCompileOpensOne) {
  WorkerPool pool(options_);
  const auto output = test::value_of(pool.compile(job(test::kSmallKernel), {}));
  EXPECT_FALSE(is_driver_opened());
  EXPECT_EQ(output.files, FileReport());
}

TEST_F(NoDriverTest, NoLinkOpensOne) {
  WorkerPool pool(options_);
  const auto about = pool.describe(nvrtc_).value();
  device::Toolchain toolchain;
  toolchain.nvrtc = nvrtc_.nvrtc;
  toolchain.facts.version = {about.major, about.minor};
  const auto linker = device::find_linker(toolchain, LibraryPlaces::of_process());
  if (!linker)
    GTEST_SKIP() << linker.error().message;
  constexpr std::string_view kPtx =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
  LinkJob link{.linker = linker->path,
               .options = {"-arch=sm_80"},
               .inputs = {{"k", {as_bytes(kPtx).begin(), as_bytes(kPtx).end()}}},
               .target = {.architecture = {{8, 0}}}};
  for (int i = 0; i < 2; ++i) {
    const auto output = pool.link(link, {});
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_FALSE(is_driver_opened());
    link.options.emplace_back("--no-cache");  // the caller's own
  }
}

TEST_F(NoDriverTest, AnOptionThatNvrtcGetsByItselfMayBeTheCallersToo) {
  WorkerPool pool(options_);
  const auto about = pool.describe(nvrtc_).value();
  if (device::CudaVersion{about.major, about.minor} < device::CudaVersion{12, 9})
    GTEST_SKIP() << "this NVRTC has no --no-cache";
  auto wanted = job(test::kSmallKernel);
  const auto without = pool.compile(wanted, {});
  wanted.options.emplace_back("--no-cache");
  const auto with = pool.compile(wanted, {});
  ASSERT_TRUE(without && with);
  EXPECT_EQ(without->image, with->image);
}

}  // namespace
}  // namespace kiln::compile
