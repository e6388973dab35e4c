// Sources that include standard headers, which NVRTC alone refuses, with real NVRTC and
// the libcu++ of its toolkit.

#include <fstream>
#include <ostream>
#include <string>

#include "compile/pool/worker_path.h"
#include "tests/support/is_error.h"
#include "tests/support/nvrtc.h"
#include "tests/support/print_name.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::PrintTo;

constexpr device::Architecture kHopper{{9, 0}, device::ArchSuffix::kA};

class StandardHeadersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (libraries_with_headers(true).empty())
      GTEST_SKIP() << "no NVRTC here came with headers";
    Config config = test::service_config(temp_.path() / "cache");
    config.nvrtc = libraries_with_headers(true).front();
    service_ = test::open_service(config);
  }
  static std::vector<fs::path> libraries_with_headers(bool with) {
    std::vector<fs::path> found;
    for (const LibraryCandidate& each : test::nvrtc_libraries()) {
      if (device::include_roots_of({each.path, each.path}).empty() != with)
        found.push_back(each.path);
    }
    return found;
  }
  void write(const fs::path& path, std::string_view text) const {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] Result<Fetched> fetch() {
    return service_->fetch(
        KILN_TRY(test::keyed(*service_, Request::from_source(source_), kHopper)));
  }
  void expect(FetchOutcome outcome) {
    const auto fetched = fetch();
    ASSERT_TRUE(fetched) << fetched.error().message;
    EXPECT_FALSE(fetched->not_stored) << fetched->not_stored->message;
    EXPECT_EQ(fetched->outcome, outcome);
  }

  const test::TempDir temp_;
  std::unique_ptr<BuildService> service_;
  SourceOptions source_;
};

struct Case {
  const char* name;
  const char* source;
};

class StandardHeaderCaseTest : public StandardHeadersTest,
                               public testing::WithParamInterface<Case> {};

TEST_P(StandardHeaderCaseTest, CompilesAndIsFoundAgain) {
  source_.source = GetParam().source;
  expect(FetchOutcome::kCompiled);
  expect(FetchOutcome::kHit);
}

const std::vector<Case> kCases = {
    {"AnAssertion",
     "#include <cassert>\n"
     "__global__ void check(const int* x) { assert(x[threadIdx.x] >= 0); }\n"},
    {"ATypeOfWhatACallGives",
     "#include <type_traits>\n"
     "struct Twice { float operator()(int x) const { return 2.0f * x; } };\n"
     "using Given = std::invoke_result_t<Twice, int>;\n"
     "static_assert(std::is_same_v<Given, float>);\n"
     "__global__ void twice(float* x) { *x = Twice()(static_cast<int>(*x)); }\n"},
    {"LimitsOfNumbers",
     "#include <limits>\n"
     "__global__ void fill(float* x, int* n) {\n"
     "  *x = -std::numeric_limits<float>::infinity();\n"
     "  *n = std::numeric_limits<int>::max();\n}\n"},
    {"LimitsOfATypeOfOnesOwn",
     "#include <limits>\n"
     "struct Fixed { int value; };\n"
     "namespace std { template <> class numeric_limits<Fixed> : public "
     "numeric_limits<int> {\npublic: static Fixed max() { return {7}; } }; }\n"
     "static_assert(std::numeric_limits<Fixed>::is_specialized);\n"
     "static_assert(std::numeric_limits<float>::digits == 24);\n"
     "static_assert(!std::numeric_limits<float3>::is_specialized);\n"
     "__global__ void fill(int* n) { *n = std::numeric_limits<Fixed>::max().value + "
     "std::numeric_limits<const int>::max(); }\n"},
    {"LimitsOfCAndOfCxxTogether",
     "#include <float.h>\n#include <limits.h>\n#include <cfloat>\n#include <climits>\n"
     "#include <limits>\n"
     "static_assert(INT_MAX == std::numeric_limits<int>::max());\n"
     "static_assert(LLONG_MIN == std::numeric_limits<long long>::min());\n"
     "static_assert(FLT_MAX == std::numeric_limits<float>::max());\n"
     "static_assert(DBL_EPSILON == std::numeric_limits<double>::epsilon());\n"
     "static_assert(FLT_TRUE_MIN == std::numeric_limits<float>::denorm_min());\n"
     "__global__ void fill(int* n) { *n = CHAR_BIT; }\n"},
    {"TheDriversHeader",
     "#include <cuda.h>\n"
     "__global__ void take(const __grid_constant__ CUtensorMap map, CUdeviceptr* p) {\n"
     "  *p = reinterpret_cast<CUdeviceptr>(&map);\n}\n"},
    {"ATokenOfABarrierThatIsMoved",
     "#include <cuda.h>\n#include <cuda/barrier>\n#include <utility>\n"
     "__global__ void wait(float* x) {\n"
     "  __shared__ cuda::barrier<cuda::thread_scope_block> bar;\n"
     "  if (threadIdx.x == 0) init(&bar, blockDim.x);\n"
     "  __syncthreads();\n"
     "  auto token = bar.arrive();\n"
     "  bar.wait(std::move(token));\n"
     "  *x = 1;\n}\n"},
    {"FunctionsWithoutAnnotationAndHeadersOfC",
     "extern \"C\" {\n#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n"
     "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n}\n"
     "#include <cmath>\n#include <cstdio>\n#include <iosfwd>\n"
     "static int calls = 0;\n"
     "std::ostream& operator<<(std::ostream&, const float2&);\n"
     "constexpr int32_t rounded(int32_t n) { return (n + 31) / 32 * 32; }\n"
     "inline double length(double a, double b) { return std::sqrt(a * a + b * b); }\n"
     "__global__ void all(double* x, uint64_t* n, char* to, const char* from) {\n"
     "  memcpy(to, from, static_cast<size_t>(rounded(5)));\n"
     "  *x = length(x[0], M_PI) + std::fma(x[1], 2.0, 1.0) + INFINITY;\n"
     "  *n = UINT32_MAX;\n  ++calls;\n  printf(\"%d\\n\", calls);\n}\n"},
};

INSTANTIATE_TEST_SUITE_P(Table, StandardHeaderCaseTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(StandardHeadersTest, OnesOwnHeaderOfTheSameNameIsTaken) {
  write(temp_.path() / "own/limits", "#define MINE 1\n");
  source_.include_dirs = {temp_.path() / "own"};
  source_.source = "#include <limits>\n__global__ void k(int* x) { *x = MINE; }\n";
  expect(FetchOutcome::kCompiled);
}

TEST_F(StandardHeadersTest, AnOptionKeepsThemAwayAndIsNamedByTheError) {
  source_.source = "__global__ void k(int* x) { *x = 1; }\n";
  source_.options = {"-nostdinc++"};
  expect(FetchOutcome::kCompiled);
  source_.source = "#include <limits>\n" + source_.source;
  EXPECT_THAT(fetch(),
              test::IsError(ErrorCode::kCompileFailed, HasSubstr("hint: -nostdinc++")));
}

TEST_F(StandardHeadersTest, ASourceThatCompilesAloneHasTheSameBytesWithThem) {
  const std::string kernel = "__global__ void k(int* x) { *x = 1; }\n";
  source_.source = kernel;
  const auto alone = fetch();
  source_.source = "#ifndef __CUDACC_RTC__\n#include <cstdint>\n#endif\n" + kernel;
  const auto with = fetch();
  ASSERT_TRUE(alone && with);
  EXPECT_EQ(with->outcome, FetchOutcome::kCompiled);
  EXPECT_TRUE(std::ranges::equal(alone->object->payload(), with->object->payload()));
}

TEST_F(StandardHeadersTest, AnotherSetOfThemIsAnotherKey) {
  source_.source = "#include <limits>\n__global__ void k(int* x) { *x = 1; }\n";
  expect(FetchOutcome::kCompiled);
  const fs::path bin = temp_.path() / "bin";
  fs::create_directories(bin);
  fs::create_symlink(*compile::find_worker({}), bin / "kiln-worker");
  fs::copy(compile::find_standard_headers(), bin / "standard_headers");
  Config config = service_->config();
  config.worker = bin / "kiln-worker";
  service_ = test::open_service(config);
  expect(FetchOutcome::kHit);
  write(bin / "standard_headers/span", "// another\n");
  service_ = test::open_service(config);
  expect(FetchOutcome::kCompiled);
}

TEST_F(StandardHeadersTest, WithoutLibcudacxxTheErrorNamesWhatToInstallOrAdd) {
  const auto others = libraries_with_headers(false);
  if (others.empty())
    GTEST_SKIP() << "every NVRTC here came with headers";
  // libcu++ alone: the other headers of a toolkit are for its own NVRTC.
  const auto roots =
      device::include_roots_of({*service_->config().nvrtc, *service_->config().nvrtc});
  Config config = service_->config();
  config.nvrtc = others.back();  // a newer one does not take these headers
  service_ = test::open_service(config);
  source_.source =
      "#include <limits>\n#include <cstdint>\n"
      "__global__ void k(float* x) { *x = std::numeric_limits<float>::max(); }\n";
  const auto without = fetch();
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message,
              AllOf(HasSubstr("hint: "), HasSubstr("nvidia-cuda-cccl")));
  source_.include_dirs = {roots.back()};
  expect(FetchOutcome::kCompiled);
}

}  // namespace
}  // namespace kiln
