// Precompiled headers, with real NVRTC: they are made and used where they pay, change
// no byte of a result, hide no change of a header, and none that is damaged,
// unfinished or another user's is used.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "build/precompiled_store.h"
#include "compile/worker/compile_log.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/service_requests.h"
#include "tests/support/template_family.h"

namespace kiln {
namespace {

using cache::Counter;
using testing::IsEmpty;
using testing::SizeIs;
namespace fs = std::filesystem;

constexpr std::uint64_t kLimitBytes = 2ULL << 30U;
constexpr int kHeaders = 120;  // more than precompiled_headers.cc asks for

/// Those that are published.
std::vector<fs::path> headers_in(const fs::path& root) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "pch", error)) {
    if (fs::exists(entry.path() / "headers"))
      found.push_back(entry.path() / "headers");
  }
  return found;
}

std::string warnings(const cache::StoredObject& object) {
  return compile::diagnostics(object.log().value());
}

class PrecompiledHeadersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (test::real_nvrtc().nvrtc.empty())
      GTEST_SKIP() << "no NVRTC";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's memory is in the place of the headers";
#endif
    fs::create_directories(own_);
    std::string all;
    for (int i = 0; i < kHeaders; ++i) {
      test::write_text(own_ / fmt::format("h{}.h", i),
                       fmt::format("#pragma once\ntemplate <class T> __device__ inline "
                                   "T add{0}(T x) {{ return x + {0}; }}\n",
                                   i));
      all += fmt::format("#include \"h{}.h\"\n", i);
    }
    test::write_text(own_ / "all.h", all);
    test::write_text(own_ / "hidden.h",
                     "#pragma once\nnamespace { __device__ int hidden[2] = {1, 2};\n"
                     "__device__ int twice(int x) { return 2 * x; } }\n");
    test::write_text(own_ / "place.h",
                     "#pragma once\n__device__ inline const char* place() { return "
                     "__FILE__; }\n");
    start();
  }

  /// As a new process would.
  void start(std::uint64_t limit = kLimitBytes) {
    Config config = test::service_config(root_);
    config.precompiled_limit_bytes = limit;
    service_ = nullptr;
    service_ = test::open_service(config);
  }

  [[nodiscard]] SourceOptions source(int number) const {
    return {.source = fmt::format("#include \"all.h\"\nextern \"C\" __global__ void "
                                  "k(int* x) {{ *x = add{0}(*x) + {0}; }}\n",
                                  number),
            .include_dirs = {own_}};
  }
  Fetched fetch(const SourceOptions& source) {
    auto fetched = test::fetch(*service_, Request::from_source(source));
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched ? *std::move(fetched) : Fetched{};
  }
  Fetched fetch(int number) {
    return fetch(source(number));
  }
  [[nodiscard]] std::uint64_t count(Counter counter) const {
    return test::counted(*service_, counter);
  }

  /// The image without precompiled headers, from a cache of its own.
  [[nodiscard]] std::shared_ptr<const cache::StoredObject> plain(
      const SourceOptions& source) const {
    Config config = test::service_config(temp_.path() / "plain");
    config.precompiled_limit_bytes = 0;
    const auto service = test::open_service(config);
    const auto fetched = test::fetch(*service, Request::from_source(source));
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched ? fetched->object : nullptr;
  }
  void expect_equal(const Fetched& fetched, const SourceOptions& source) const {
    const auto other = plain(source);
    ASSERT_NE(fetched.object, nullptr);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(std::ranges::equal(fetched.object->payload(), other->payload()));
    EXPECT_TRUE(fetched.object->same_build(*other));
    EXPECT_EQ(warnings(*fetched.object), warnings(*other));
  }

  /// The one that two sources have made.
  fs::path make_one() {
    fetch(0);
    fetch(1);
    const auto made = headers_in(root_);
    EXPECT_THAT(made, SizeIs(1));
    return made.empty() ? fs::path() : made.front();
  }

  const test::TempDir temp_;
  const fs::path own_ = fs::canonical(temp_.path()) / "own";
  const fs::path root_ = temp_.path() / "cache";
  std::unique_ptr<BuildService> service_;
};

TEST_F(PrecompiledHeadersTest, TheSecondSourceMakesOneAndEveryLaterProcessUsesIt) {
  fetch(0);
  EXPECT_EQ(count(Counter::kPrecompiledMade), 0U) << "one source needs none";
  expect_equal(fetch(1), source(1));
  EXPECT_EQ(count(Counter::kPrecompiledMade), 1U);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
  for (int i = 2; i < 5; ++i) {
    start();
    expect_equal(fetch(i), source(i));
    EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << i;
    EXPECT_EQ(count(Counter::kPrecompiledRefused), 0U) << i;
  }
  EXPECT_THAT(headers_in(root_), SizeIs(1));
  EXPECT_TRUE(fs::is_empty(root_ / "pch" / "new"));
}

TEST_F(PrecompiledHeadersTest, AWishForOneMakesItAtOnceAndIsInNoKey) {
  SourceOptions wish = source(7);
  wish.options = {"--pch", "--pch-dir=/nowhere"};
  expect_equal(fetch(wish), source(7));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
  EXPECT_EQ(fetch(7).outcome, FetchOutcome::kHit) << "the wish was in the key";
}

TEST_F(PrecompiledHeadersTest, OfEightServicesAtOnceEachBuildsAndAFewMakeOne) {
  fetch(0);
  std::vector<std::unique_ptr<BuildService>> services;
  for (int i = 0; i < 8; ++i) {
    Config config = test::service_config(root_);
    config.precompiled_limit_bytes = kLimitBytes;
    config.jobs = 8;
    services.push_back(test::open_service(config));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i, &services] {
      EXPECT_TRUE(test::fetch(*services[static_cast<std::size_t>(i)],
                              Request::from_source(source(i + 1))));
    });
  }
  for (auto& thread : threads) thread.join();
  std::uint64_t made = 0;
  for (const auto& service : services) {
    made += test::counted(*service, Counter::kPrecompiledMade);
    EXPECT_EQ(test::counted(*service, Counter::kCompiled), 1U);
  }
  EXPECT_EQ(made, 1U);
  EXPECT_THAT(headers_in(root_), SizeIs(1));
}

// --- what it stands for has changed ----------------------------------------------

TEST_F(PrecompiledHeadersTest, AChangedHeaderIsAMissAndItsPrecompiledOneIsNotUsed) {
  make_one();
  test::write_text(own_ / "h3.h",
                   "#pragma once\ntemplate <class T> __device__ T add3(T x) { return x "
                   "* 5; }\n");
  const Fetched changed = fetch(3);
  EXPECT_EQ(changed.outcome, FetchOutcome::kCompiled);
  expect_equal(changed, source(3));
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << "by make_one()";
}

TEST_F(PrecompiledHeadersTest,
       AHeaderThatChangesBehindTheKeyIsNotedThoughNobodyOpensIt) {
  make_one();
  const Request request = Request::from_source(source(4));
  const auto keyed = test::keyed(*service_, request);
  ASSERT_TRUE(keyed);
  test::write_text(own_ / "h5.h", "#pragma once\n");
  const auto fetched = service_->fetch(*keyed);
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 2U);
  ASSERT_TRUE(fetched->not_stored) << "the report of the files was lost";
  EXPECT_THAT(fetched->not_stored->message, testing::HasSubstr("h5.h"));
}

TEST_F(PrecompiledHeadersTest, OtherOptionsAndAnotherBeginningHaveTheirOwn) {
  make_one();
  SourceOptions other = source(2);
  other.defines = {"OTHER"};
  expect_equal(fetch(other), other);
  other = source(2);
  other.source = "#define OTHER 1\n" + other.source;
  expect_equal(fetch(other), other);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U) << "by make_one()";
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 0U);
}

TEST_F(PrecompiledHeadersTest, AnotherTextOfAHeaderInMemoryHasItsOwn) {
  for (int number = 1; number < 4; ++number) {
    SourceOptions each{
        .source =
            "#include \"mine.h\"\n#include \"all.h\"\nextern \"C\" "
            "__global__ void k(int* x) { *x = mine(); }\n",
        .headers = {{"mine.h", fmt::format("__device__ inline int mine() "
                                           "{{ return {}; }}\n",
                                           number)}},
        .include_dirs = {own_},
        .options = {"--pch"}};
    expect_equal(fetch(each), each);
    EXPECT_EQ(count(Counter::kPrecompiledUsed), static_cast<std::uint64_t>(number));
  }
  EXPECT_EQ(count(Counter::kPrecompiledMade), 3U);
}

// --- faults ----------------------------------------------------------------------

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
  const auto before = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    return limit;
  }();
  rlimit small = before;
  small.rlim_cur = 1U << 20U;
  ::setrlimit(RLIMIT_FSIZE, &small);
  start();  // its workers have that limit
  const Fetched fetched = fetch(1);
  ::setrlimit(RLIMIT_FSIZE, &before);
  expect_equal(fetched, source(1));
  EXPECT_EQ(count(Counter::kPrecompiledRefused), 1U);
  EXPECT_THAT(headers_in(root_), IsEmpty());
}

TEST_F(PrecompiledHeadersTest, ASourcesOwnErrorReadsTheSameWithOne) {
  make_one();
  SourceOptions wrong = source(2);
  wrong.source += "__global__ void wrong() { nothing_is_called_so(); }\n";
  const auto with = test::fetch(*service_, Request::from_source(wrong));
  start(0);
  const auto without = test::fetch(*service_, Request::from_source(wrong));
  ASSERT_FALSE(with);
  ASSERT_FALSE(without);
  EXPECT_EQ(with.error().message, without.error().message);
}

TEST_F(PrecompiledHeadersTest, HeadersThatWarnHaveNoneSoThatNoWarningIsLost) {
  test::write_text(own_ / "h9.h", "#pragma once\n#warning \"mind this\"\n");
  for (int i = 0; i < 3; ++i) {
    SourceOptions each = source(i);
    const Fetched fetched = fetch(each);
    EXPECT_THAT(warnings(*fetched.object), testing::HasSubstr("mind this"));
  }
  EXPECT_EQ(count(Counter::kPrecompiledMade), 0U);
}

// --- equal bytes -----------------------------------------------------------------

struct EqualCase {
  const char* name;
  std::string text;
  std::vector<std::string> options{};
  std::vector<std::string> names{};
};

void PrintTo(const EqualCase& test, std::ostream* out) {
  *out << test.name;
}

class EqualBytesTest : public PrecompiledHeadersTest,
                       public testing::WithParamInterface<EqualCase> {};

TEST_P(EqualBytesTest, WithAPrecompiledHeaderAndWithout) {
  SourceOptions source{.source = GetParam().text,
                       .include_dirs = {own_},
                       .options = GetParam().options,
                       .name_expressions = GetParam().names};
  SourceOptions wish = source;
  wish.options.emplace_back("--pch");
  expect_equal(fetch(wish), source);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
  // In another process, by a source with another name.
  start();
  wish.file_name = source.file_name = "other.cu";
  expect_equal(fetch(wish), source);
  EXPECT_EQ(count(Counter::kPrecompiledUsed), 1U);
}

constexpr const char* kOwn =
    "#include \"all.h\"\n__global__ void k(int* x) { *x = add1(add2(*x)); }\n";
constexpr const char* kCub = R"(#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
extern "C" __global__ void k(const float* in, float* out) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  const float sum = Reduce(storage).Sum(in[threadIdx.x]);
  if (threadIdx.x == 0) *out = sum;
})";

INSTANTIATE_TEST_SUITE_P(
    Sources, EqualBytesTest,
    testing::Values(
        EqualCase{"own", kOwn}, EqualCase{"own_debug", kOwn, {"-G"}},
        EqualCase{"cub_lineinfo", kCub, {"-lineinfo"}},
        EqualCase{
            "anonymous",
            "#include \"all.h\"\nnamespace { __device__ int table[4] = {1, 2, 3, 4};"
            "\n__global__ void k(int* x) { *x = table[*x & 3]; } }\n",
            {},
            {"k"}},
        EqualCase{
            "anonymous_in_a_header",
            "#include \"hidden.h\"\n#include \"all.h\"\n__global__ void k(int* x) { "
            "*x = hidden[*x & 1] + twice(*x); }\n"},
        EqualCase{"file_and_line",
                  "#define BEFORE 3\n#include \"place.h\"\n#include \"all.h\"\n\n"
                  "__global__ void k(const char** x, int* y) { x[0] = __FILE__; x[1] = "
                  "place(); *y = __LINE__ + BEFORE; }\n"},
        EqualCase{
            "templates",
            "#include \"all.h\"\ntemplate <class T> __global__ void k(T* x) { *x = "
            "add9(*x); }\n",
            {"--std=c++20"},
            {"k<int>", "k<float>"}},
        EqualCase{"cooperative_groups",
                  "#include <cooperative_groups.h>\n#include "
                  "<cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;\n"
                  "__global__ void k(int* x) { auto w = "
                  "cg::tiled_partition<32>(cg::this_thread_block()); *x = "
                  "cg::reduce(w, *x, cg::plus<int>()); }\n"},
        EqualCase{"bf16",
                  "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n__global__ void "
                  "k(__nv_bfloat16* x, __half* y) { *x = __hadd(*x, *x); *y = "
                  "__hmul(*y, *y); }\n"},
        EqualCase{
            "cuda_std",
            "#include <cuda/std/array>\n#include <cuda/std/tuple>\n#include "
            "<cuda/std/type_traits>\n__global__ void k(int* x) { cuda::std::array<int, "
            "4> a{1, 2, 3, *x}; *x = a[*x & 3]; }\n"},
        EqualCase{"fast_math",
                  "#define __NV_X 1\n#include <cuda_fp16.h>\n#include "
                  "<mma.h>\n__global__ void k(float* x) { *x = sinf(*x) / "
                  "3.f; }\n",
                  {"--use_fast_math", "--maxrregcount=32"}},
        EqualCase{
            "not_only_at_the_beginning",
            "#include \"all.h\"\n__device__ int own(int x) { return x; }\n#include "
            "<cuda_fp16.h>\n__global__ void k(__half* x) { *x = "
            "__int2half_rn(own(add4(1))); }\n"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kiln
