// What a build read, and looked for in vain, against its key, with real NVRTC: a result
// is stored exactly if the key follows everything that the compiler could have found.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/compile_jobs.h"
#include "tests/support/is_error.h"
#include "tests/support/print_name.h"
#include "tests/support/service_requests.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using cache::Counter;
using test::PrintTo;

constexpr std::string_view kKernel =
    "extern \"C\" __global__ void k(int* x) { *x = OWN_VALUE; }\n";

class StoredHeadersTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(own_);
    service_ = test::open_service(test::service_config(temp_.path() / "cache"));
    source_.include_dirs = {own_};
  }

  void write(const fs::path& name, std::string_view text) const {
    test::write_text(own_ / name, text);
  }
  /// Each is a request of its own: headers are read again.
  [[nodiscard]] Fetched fetch() {
    auto fetched = test::fetch(*service_, Request::from_source(source_));
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched ? *std::move(fetched) : Fetched{};
  }
  void expect_stored() {
    const Fetched fetched = fetch();
    EXPECT_FALSE(fetched.not_stored) << fetched.not_stored->message;
    EXPECT_EQ(fetched.outcome, FetchOutcome::kCompiled);
    EXPECT_EQ(fetch().outcome, FetchOutcome::kHit);
  }

  const test::TempDir temp_;
  const fs::path own_ = fs::canonical(temp_.path()) / "own";
  std::unique_ptr<BuildService> service_;
  SourceOptions source_;
};

// --- what the key does not follow ------------------------------------------------

struct Condition {
  const char* name;
  std::string text;    // the condition, up to its end of line
  std::string header;  // what it asks for, in a way that no reading of the text finds
};

class ComputedConditionTest : public StoredHeadersTest,
                              public testing::WithParamInterface<Condition> {};

TEST_P(ComputedConditionTest, IsUsedAndNotStoredWhateverItFound) {
  source_.source = GetParam().text +
                   "\n#define OWN_VALUE 2\n#else\n#define OWN_VALUE 1\n#endif\n" +
                   std::string(kKernel);
  const Fetched absent = fetch();
  ASSERT_TRUE(absent.not_stored) << "nothing in the key changes when it appears";
  EXPECT_THAT(
      absent.not_stored->message,
      AllOf(HasSubstr("computed condition"),
            HasSubstr(fs::path(GetParam().header).replace_extension().native())));
  EXPECT_EQ(test::counted(*service_, Counter::kInputsNotAsKeyed), 1U);
  write(GetParam().header, "");
  const auto other = test::open_service(test::service_config(temp_.path() / "cache"));
  const auto present =
      test::value_of(test::fetch(*other, Request::from_source(source_)));
  EXPECT_EQ(present.outcome, FetchOutcome::kCompiled);
  EXPECT_NE(present.object->payload().size(), 0U);
  EXPECT_FALSE(std::ranges::equal(present.object->payload(), absent.object->payload()));
}

const std::vector<Condition> kConditions = {
    {"AMacroThatPutsTheNameTogether",
     "#define CAT(a) <a.h>\n#if __has_include(CAT(opt))", "opt.h"},
    {"AStringMadeOfAnArgument",
     "#define STR_(x) #x\n#define STR(x) STR_(x)\n#if __has_include(STR(opt.h))",
     "opt.h"},
    {"AMacroAroundTheOperator",
     "#define HAS(x) __has_include(x)\n#define N opt.h\n#if HAS(<N>)", "opt.h"},
    {"AMacroThatIsTheOperator",
     "#define HAS __has_include\n#define CAT(a) <a.h>\n#if HAS(CAT(opt))", "opt.h"},
    {"ANameInAFolder", "#define CAT(a) <sub/a.h>\n#if __has_include(CAT(opt))",
     "sub/opt.h"},
    {"TheStandardSuffix", "#define CAT(a) <a>\n#if __has_include(CAT(opt))",
     "opt.stdh"},
};

INSTANTIATE_TEST_SUITE_P(Table, ComputedConditionTest, testing::ValuesIn(kConditions),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(StoredHeadersTest, AFolderOfTheNameThatAComputedConditionAsksForIsNotAsKeyed) {
  fs::create_directories(own_ / "opt.h");
  source_.source =
      "#define CAT(a) <a.h>\n#if __has_include(CAT(opt))\n#endif\n#define OWN_VALUE "
      "1\n" +
      std::string(kKernel);
  const Fetched fetched = fetch();
  ASSERT_TRUE(fetched.not_stored);
  EXPECT_THAT(fetched.not_stored->message, HasSubstr((own_ / "opt.h").native()));
}

TEST_F(StoredHeadersTest, AHeaderThatGoesBetweenKeyAndCompileIsNotAsKeyed) {
  write("opt.h", "");
  source_.source =
      "#if __has_include(<opt.h>)\n#define OWN_VALUE 2\n#else\n#define OWN_VALUE "
      "1\n#endif\n" +
      std::string(kKernel);
  const auto keyed =
      test::value_of(test::keyed(*service_, Request::from_source(source_)));
  fs::remove(own_ / "opt.h");
  const auto fetched = test::value_of(service_->fetch(keyed));
  ASSERT_TRUE(fetched.not_stored) << "the key says that it is there";
  EXPECT_THAT(fetched.not_stored->message, HasSubstr((own_ / "opt.h").native()));
}

// NVRTC knows the file by its device and inode, and does not open it a second time.
TEST_F(StoredHeadersTest, AHeaderThatBecomesAnotherNameOfOneBeforeItIsNotAsKeyed) {
  write("one.h", "#pragma once\n#define OWN_VALUE 1\n");
  write("two.h", "#pragma once\n#undef OWN_VALUE\n#define OWN_VALUE 2\n");
  source_.source = "#include <one.h>\n#include <two.h>\n" + std::string(kKernel);
  const auto keyed =
      test::value_of(test::keyed(*service_, Request::from_source(source_)));
  fs::remove(own_ / "two.h");
  fs::create_symlink("one.h", own_ / "two.h");
  const auto fetched = test::value_of(service_->fetch(keyed));
  ASSERT_TRUE(fetched.not_stored) << "the key says that these are two files";
  EXPECT_THAT(fetched.not_stored->message, HasSubstr((own_ / "two.h").native()));
}

TEST_F(StoredHeadersTest, AComputedIncludeFromSharedMemoryIsNotAsKeyed) {
  const fs::path folder = fmt::format("/dev/shm/kiln-test-{}", ::getpid());
  test::write_text(folder / "v.h", "#define OWN_VALUE 1\n");
  source_.include_dirs = {folder};
  source_.source = "#define STR(x) #x\n#include STR(v.h)\n" + std::string(kKernel);
  const Fetched fetched = fetch();
  fs::remove_all(folder);
  ASSERT_TRUE(fetched.not_stored);
  EXPECT_THAT(fetched.not_stored->message, HasSubstr((folder / "v.h").native()));
}

TEST_F(StoredHeadersTest, AHeaderInSharedMemoryIsInTheKey) {
  const fs::path folder = fmt::format("/dev/shm/kiln-test-{}", ::getpid());
  test::write_text(folder / "v.h", "#define OWN_VALUE 1\n");
  source_.include_dirs = {folder};
  source_.source = "#include <v.h>\n" + std::string(kKernel);
  expect_stored();
  test::write_text(folder / "v.h", "#define OWN_VALUE 2\n");
  EXPECT_EQ(fetch().outcome, FetchOutcome::kCompiled);
  fs::remove_all(folder);
}

TEST_F(StoredHeadersTest, TheTimeOfTheBuildIsNotStored) {
  source_.source = "#define OWN_VALUE (__TIME__[7])\n" + std::string(kKernel);
  const Fetched fetched = fetch();
  ASSERT_TRUE(fetched.not_stored) << "the next build gives another value";
  EXPECT_THAT(fetched.not_stored->message,
              AllOf(HasSubstr("kernel.cu"), HasSubstr("__TIME__ in line 1")));
  EXPECT_EQ(fetch().outcome, FetchOutcome::kCompiled);
}

TEST_F(StoredHeadersTest, AHeaderThatNamesTheTimeOfTheBuildIsNotStoredIfItIsRead) {
  write("now.h", "#define OWN_VALUE (__TIME__[7])\n");
  source_.source = "#include <now.h>\n" + std::string(kKernel);
  const Fetched fetched = fetch();
  ASSERT_TRUE(fetched.not_stored);
  EXPECT_THAT(fetched.not_stored->message, HasSubstr((own_ / "now.h").native()));
  source_.source = "#ifdef NEVER\n#include <now.h>\n#endif\n#define OWN_VALUE 1\n" +
                   std::string(kKernel);
  expect_stored();
}

TEST_F(StoredHeadersTest, AFileWhoseSizeSaysNothingIsNotStored) {
  const fs::path pid = "/proc/sys/kernel/ns_last_pid";  // each new process changes it
  if (::access(pid.c_str(), R_OK) != 0)
    GTEST_SKIP() << "this kernel does not tell the last pid";
  source_.source = "__device__ int pid =\n#include \"" + pid.native() +
                   "\"\n;\n#define OWN_VALUE pid\n" + std::string(kKernel);
  const Fetched fetched = fetch();
  ASSERT_TRUE(fetched.not_stored);
  EXPECT_THAT(fetched.not_stored->message, HasSubstr(pid.native()));
}

TEST_F(StoredHeadersTest, AStoppedSearchForHeadersIsNotRemembered) {
  write("a.h", "#define OWN_VALUE 1\n");
  source_.source = "#include <a.h>\n" + std::string(kKernel);
  const auto prepared = service_->prepare(Request::from_source(source_)).value();
  std::stop_source stop;
  stop.request_stop();
  const device::BuildFor sm_90 = ComputeCapability{9, 0};
  EXPECT_THAT(service_->key(prepared, sm_90, stop.get_token()),
              test::IsError(ErrorCode::kCancelled));
  EXPECT_TRUE(service_->key(prepared, sm_90));
}

// --- what is no file ---------------------------------------------------------------

TEST_F(StoredHeadersTest, AFifoIsPassedOverAtOnceAsTheCompilerWouldInTheEnd) {
  write("late/v.h", "#define OWN_VALUE 1\n");
  fs::create_directories(own_ / "early");
  ASSERT_EQ(::mkfifo((own_ / "early/v.h").c_str(), 0600), 0);
  source_.include_dirs = {own_ / "early", own_ / "late"};
  source_.source = "#include <v.h>\n" + std::string(kKernel);
  expect_stored();
}

TEST_F(StoredHeadersTest, AFifoWithoutAFileBehindItIsNamed) {
  ASSERT_EQ(::mkfifo((own_ / "v.h").c_str(), 0600), 0);
  source_.source = "#include <v.h>\n" + std::string(kKernel);
  EXPECT_THAT(test::fetch(*service_, Request::from_source(source_)),
              test::IsError(ErrorCode::kCompileFailed,
                            HasSubstr((own_ / "v.h").native() + " is a FIFO")));
}

TEST_F(StoredHeadersTest, AHeaderOfTheStandardLibraryIsNamedWithTheOneToUse) {
  source_.source = "#include <type_traits>\n" + std::string(kKernel);
  source_.options = {"-nostdinc++"};
  const auto fetched = test::fetch(*service_, Request::from_source(source_));
  ASSERT_FALSE(fetched);
  EXPECT_THAT(fetched.error().message, HasSubstr("include <cuda/std/type_traits>"));
}

// --- what the key follows ----------------------------------------------------------

TEST_F(StoredHeadersTest, NestedHeadersThatAreAndThatAreNotThere) {
  write("d/a.h", "#include \"b.h\"\n#include \"../c.h\"\n#include <e>\n");
  write("d/b.h", "#if __has_include(\"none.h\") || __has_include(<d/none>)\n#endif\n");
  write("c.h", "#ifdef NEVER\n#include \"never.h\"\n#endif\n#include \"d/../d/f.h\"\n");
  write("e.stdh", "#if __has_include_next(<e>)\n#endif\n");
  write("d/f.h", "#define OWN_VALUE 1\n#if __has_include(\"../../none.h\")\n#endif\n");
  fs::create_directories(own_ / "late");
  source_.include_dirs = {own_ / "early", own_ / "d/..", own_ / "late/"};
  source_.source = "#include \"d/a.h\"\n#include <d/a.h>\n" + std::string(kKernel);
  expect_stored();
}

TEST_F(StoredHeadersTest, HeadersInMemoryPreIncludesAndNoSourceInclude) {
  write("d/a.h", "#include \"m.h\"\n#include <sub/n.h>\n#include \"b.h\"\n");
  write("b.h", "#define OWN_VALUE 1\n");
  write("pre.h", "#if __has_include(\"not/there.h\")\n#endif\n");
  source_.headers = {{"m.h", "#if __has_include(\"other.h\")\n#endif\n"},
                     {"sub/n.h", "#if __has_include(\"beside.h\")\n#endif\n"}};
  source_.options = {"--pre-include=pre.h"};
  source_.source = "#include <d/a.h>\n" + std::string(kKernel);
  expect_stored();
  source_.options.emplace_back("-no-source-include");
  expect_stored();
}

TEST_F(StoredHeadersTest, AnIncludeWhoseOperandADefineSpells) {
  write("body.h", "#define OWN_VALUE 1\n");
  source_.defines = {"BODY=\"body.h\""};
  source_.source = "#include BODY\n" + std::string(kKernel);
  expect_stored();
  write("body.h", "#define OWN_VALUE 2\n");
  expect_stored();  // under another key
  source_.defines = {};
  source_.options = {"-D", "BODY=<body.h>"};
  expect_stored();
}

TEST_F(StoredHeadersTest, AFolderThatAppears) {
  write("late/v.h", "#define OWN_VALUE 1\n");
  source_.include_dirs = {own_ / "early", own_ / "late"};
  source_.source = "#include <v.h>\n" + std::string(kKernel);
  expect_stored();
  write("early/v.h", "#define OWN_VALUE 2\n");
  expect_stored();
  source_.include_dirs = {own_ / "late"};
  source_.options = {"-I", (own_ / "none").native()};
  EXPECT_EQ(fetch().outcome, FetchOutcome::kHit) << "nothing else was found";
}

TEST_F(StoredHeadersTest, AConditionWhoseOperandAMacroSpells) {
  source_.source =
      "#define H <opt.h>\n#if __has_include(H)\n#define OWN_VALUE 2\n#else\n"
      "#define OWN_VALUE 1\n#endif\n" +
      std::string(kKernel);
  expect_stored();
  write("opt.h", "");
  expect_stored();  // under another key
}

TEST_F(StoredHeadersTest, TheToolkitsHeadersBehindFoldersOfOnesOwn) {
  if (device::include_roots_of({test::real_nvrtc().nvrtc, test::real_nvrtc().nvrtc})
          .empty())
    GTEST_SKIP() << "this NVRTC came without headers";
  write("cuda/mine.h", "#define OWN_VALUE 1\n");
  write("nv/other.h", "");
  write("cub.h", "");
  fs::create_directories(own_ / "cuda/std/detail");
  source_.include_dirs = {own_, own_ / "cuda", own_ / "none"};
  source_.source =
      "#include <mine.h>\n#include <cub/block/block_reduce.cuh>\n#include "
      "<cuda_bf16.h>\n"
      "#include <cuda_fp16.h>\n#include <cuda/std/tuple>\n#include <cuda/std/span>\n"
      "#include <cuda/std/complex>\n#include <cuda/std/type_traits>\n"
      "#include <cooperative_groups.h>\n#include <thrust/tuple.h>\n" +
      std::string(kKernel);
  expect_stored();
}

TEST_F(StoredHeadersTest, TheToolkitsHeadersAsFoldersOfOnesOwn) {
  const auto roots =
      device::include_roots_of({test::real_nvrtc().nvrtc, test::real_nvrtc().nvrtc});
  if (roots.empty())
    GTEST_SKIP() << "this NVRTC came without headers";
  // By links, which no path shows to be the toolkit's.
  fs::create_directory_symlink(roots.front(), own_ / "alias");
  source_.include_dirs = {own_ / "alias", own_ / "alias/cccl"};
  source_.source = "#include <cub/block/block_reduce.cuh>\n#define OWN_VALUE 1\n" +
                   std::string(kKernel);
  expect_stored();
}

TEST_F(StoredHeadersTest, EveryFolderOfAToolkitWhoseHeadersLieSideBySide) {
  const auto real = test::real_nvrtc();
  if (real.builtins.empty())
    GTEST_SKIP() << "this machine's NVRTC has no builtins beside it";
  // As the wheels of CUDA 12 lay them out.
  const fs::path packages = own_ / "nvidia";
  const fs::path lib = packages / "cuda_nvrtc/lib";
  fs::create_directories(lib);
  fs::copy_file(real.nvrtc, lib / real.nvrtc.filename());
  fs::copy_file(real.builtins, lib / real.builtins.filename());
  write("nvidia/cuda_runtime/include/cuda_fp16.h", "#include <cub/value.cuh>\n");
  write("nvidia/cuda_cccl/include/cub/value.cuh", "#define OWN_VALUE 1\n");
  // Whole, so that no toolkit that CUDA_HOME names is taken instead.
  write("nvidia/cuda_cccl/include/cuda/std/version", "");
  write("nvidia/cuda_nvcc/include/crt/mma.h", "");
  Config config = test::service_config(temp_.path() / "cache");
  config.nvrtc = lib / real.nvrtc.filename();
  service_ = test::open_service(config);
  source_.include_dirs = {};
  source_.source = "#include <cuda_fp16.h>\n" + std::string(kKernel);
  expect_stored();
  write("nvidia/cuda_cccl/include/cub/value.cuh", "#define OWN_VALUE 2\n");
  expect_stored();  // under another key
  source_.source = "#include <cub/value.cuh>\n" + std::string(kKernel);
  expect_stored();
  write("nvidia/cuda_cccl/include/cub/value.cuh", "#define OWN_VALUE 3\n");
  expect_stored();
}

TEST_F(StoredHeadersTest, AConditionOfATemplateWithoutAnyInclude) {
  constexpr std::string_view kToml =
      "schema = 1\nsource = \"asks.cu.mustache\"\n[targets]\nminimum = "
      "\"7.5\"\n[launch]\narguments.n = \"n\"\n"
      "grid = [1]\nblock = [32]\n[[kernel]]\nname = \"asks_fwd\"\nsummary = \"asks\"\n"
      "default_set = [{}]\nquick = [{}]\n";
  test::write_text(own_ / "asks/kernel.toml", kToml);
  test::write_text(
      own_ / "asks/asks.cu.mustache",
      "#if __has_include(\"opt.h\")\n#define OWN_VALUE 2\n#else\n#define OWN_VALUE 1\n"
      "#endif\nextern \"C\" __global__ void asks_fwd(int* x) { *x = OWN_VALUE; }\n");
  Config config = test::service_config(temp_.path() / "cache");
  config.template_dirs = {own_};
  const auto fetch = [&] {
    auto fetched = test::fetch(*test::open_service(config), Request("asks_fwd"));
    EXPECT_TRUE(fetched) << fetched.error().message;
    return fetched ? *std::move(fetched) : Fetched{};
  };
  const Fetched absent = fetch();
  EXPECT_FALSE(absent.not_stored) << absent.not_stored->message;
  EXPECT_EQ(fetch().outcome, FetchOutcome::kHit);
  test::write_text(own_ / "asks/opt.h", "");
  const Fetched present = fetch();
  EXPECT_EQ(present.outcome, FetchOutcome::kCompiled);
  EXPECT_FALSE(present.not_stored);
  EXPECT_FALSE(std::ranges::equal(present.object->payload(), absent.object->payload()));
}

}  // namespace
}  // namespace kiln
