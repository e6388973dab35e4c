// What is said of a source that NVRTC refuses: names, options of nvcc, host code.

#include "request/source_hint.h"

#include <string>

#include "request/nvcc_words.h"
#include "request/source_kernels.h"
#include "tests/support/test.h"

namespace kiln::request {
namespace {

using Kernels = std::vector<SourceKernel>;

TEST(SourceKernelsTest, FindsWhatAnAuthorCallsAKernel) {
  EXPECT_EQ(kernels_in(R"(
      // __global__ void in_a_comment() {}
      /* __global__ void in_another(); */
      #define KERNEL(n) __global__ void n(float*)
        # define TWO(n) \
          __global__ void n()
      const char* text = "__global__ void in_a_text() {}";
      extern "C" __global__ void plain(float* x);
      extern "C" __global__ void plain(float* x) { f<int>(x); }
      template <typename T, int N = (1 + 2)>
      static __global__ void __launch_bounds__(N * (2), 4) scale(T* x) {}
      __global__ __launch_bounds__(128) void bounded() {}
      namespace a { template <class T> struct S { T x; }; __global__
      void
      split(int) {} }
      template <int N> __device__ int helper() { return N; }
      __global__ void last(int x))"),
            (Kernels{{"plain", false},
                     {"scale", true},
                     {"bounded", false},
                     {"split", false},
                     {"last", false}}));
}

TEST(SourceKernelsTest, OfATextThatIsCutThereIsNoMoreThanItHas) {
  const std::string text =
      "template <int N> __global__ void __launch_bounds__(N) k(int x) { \"a\\\"b\"; }";
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_LE(kernels_in(std::string_view(text).substr(0, size)).size(), 1U);
  for (const char* const odd :
       {"__global__", "__global__(", "__global__ (((", "\"", "/*",
        "__global__ ; void k(", "'", "template<__global__>"})
    EXPECT_THAT(kernels_in(odd), IsEmpty()) << odd;
}

std::string refusal_of(const std::vector<std::string>& names) {
  std::string log;
  for (const std::string& name : names)
    log +=
        "__nv_name_map(2): error: Error in parsing name expression for lowered name "
        "lookup. Input name expression was: \" " +
        name + "\"\n";
  return log;
}

SourceOptions with_names(std::vector<std::string> names) {
  SourceOptions source;
  source.source =
      "__global__ void my_add() {}\n"
      "template <class T> __global__ void scale(T* x) {}\n";
  source.file_name = "dir/kernel.cu";
  source.name_expressions = std::move(names);
  return source;
}

std::vector<std::string> hints_of(std::vector<std::string> names) {
  const std::string log = refusal_of(names);
  return source_hints(with_names(std::move(names)), log);
}

TEST(SourceHintTest, AWrongNameListsTheKernelsThatTheSourceHas) {
  EXPECT_THAT(hints_of({"my_ad"}),
              ElementsAre("there is no kernel 'my_ad' in kernel.cu; it has my_add, "
                          "scale<...>, did you mean 'my_add'?"));
  EXPECT_THAT(hints_of({"a::scale"}),
              ElementsAre(HasSubstr("name an instance, such as scale<float>")));
  EXPECT_THAT(hints_of({"my_add<int>"}),
              ElementsAre(HasSubstr("my_add is no template")));
  EXPECT_THAT(hints_of({"scale<none>", "my_add", "&variable"}), IsEmpty());
  EXPECT_THAT(source_hints(with_names({"of_a_header", "my_ad"}), refusal_of({"my_ad"})),
              testing::SizeIs(1));
  SourceOptions none = with_names({"k"});
  none.source = "";
  EXPECT_THAT(source_hints(none, refusal_of({"k"})),
              ElementsAre(HasSubstr("it has none")));
}

TEST(SourceHintTest, ThousandsOfWrongNamesAreAFewShortHints) {
  SourceOptions source;
  for (int i = 0; i < 10'000; ++i) {
    source.source += "__global__ void kernel" + std::to_string(i) + "() {}\n";
    source.name_expressions.push_back("wrong" + std::to_string(i));
  }
  const auto hints = source_hints(source, refusal_of(source.name_expressions));
  ASSERT_THAT(hints, testing::SizeIs(3));
  EXPECT_LT(hints[0].size(), 1000U);
  EXPECT_THAT(hints[0], HasSubstr("and 9980 more"));
}

TEST(SourceHintTest, AnOptionOfNvccHasItsSpelling) {
  SourceOptions source;
  source.options = {"-O3", "-lineinfo", "--extended-lambda"};
  EXPECT_THAT(source_hints(source, "nvrtc: error: unrecognized option -O3 found"),
              ElementsAre(HasSubstr("nvcc's -O3: device code is always optimized")));
}

TEST(SourceHintTest, ALanguageThatIsNoneHasItsSpelling) {
  constexpr const char* kLog =
      "NVRTC_ERROR_INVALID_OPTION\nnvrtc: error: invalid value for --std(-std)";
  SourceOptions source;
  for (const char* const option : {"--std=20", "-std=20"}) {
    source.options = {option, "-lineinfo"};
    EXPECT_THAT(source_hints(source, kLog), ElementsAre("the option is --std=c++20"));
  }
  for (const char* const option : {"--std=c++98", "--std=", "-std=gnu++20"}) {
    source.options = {option};
    EXPECT_THAT(source_hints(source, kLog), ElementsAre(HasSubstr("are --std=c++20")));
  }
}

TEST(SourceHintTest, ANameWithBlanksIsToldWithoutThem) {
  for (const char* const name : {"scal ", "n::scal <float>"})
    EXPECT_THAT(hints_of({name}),
                ElementsAre(HasSubstr("there is no kernel 'scal' in")))
        << name;
}

TEST(SourceHintTest, HostCodeIsToBeGuarded) {
  const auto hints = [](const char* text, const char* log) {
    SourceOptions source;
    source.source = text;
    return source_hints(source, log);
  };
  EXPECT_THAT(hints("// k<<<1, 1>>>()", "k.cu(2): error: identifier \"x\""), IsEmpty());
  EXPECT_THAT(hints("", "k.cu(1): error: identifier\n  void f() { k<<<1, 1>>>(); }"),
              ElementsAre(testing::AllOf(HasSubstr("host code (<<<)"),
                                         HasSubstr("#ifndef __CUDACC_RTC__"))));
  EXPECT_THAT(hints("void f() {}", "host functions are not allowed in JIT mode"),
              ElementsAre(HasSubstr("a function without __device__ is host code")));
  EXPECT_THAT(hints("", "/thrust/detail/a.h(1): error"),
              ElementsAre(HasSubstr("cub::BlockReduce")));
  EXPECT_THAT(hints("__global__ void k() { x; }", "error: identifier \"x\""),
              IsEmpty());
}

TEST(NvccWordsTest, WhatNvrtcTakesIsNoneOfTheOthers) {
  for (const char* const word :
       {"-lineinfo", "--use_fast_math", "-maxrregcount=64", "-Xptxas=-v", "-G", "-dlto",
        "-rdc=true", "--split-compile=2", "-dc", "-Xptxas", "--maxrregcount"})
    EXPECT_EQ(nvcc_hint(word).kind, NvccOption::kOfNvrtc) << word;
  for (const char* const word :
       {"-O3", "-std=c++20", "-gencode", "-arch=sm_90", "--expt-relaxed-constexpr",
        "-Xcompiler", "-ccbin", "-m64", "-lcudart", "-L/usr/lib", "-Werror", "-t", "-c",
        "-cudart", "--cudart=none", "-fatbin", "-src-in-ptx",
        "--default-stream=legacy"})
    EXPECT_EQ(nvcc_hint(word).kind, NvccOption::kElsewhere) << word;
  for (const char* const word :
       {"--jsn", "-q", "", "-", "--", "--lineinfo2", "-tx", "-Ofast-compile=1"})
    EXPECT_EQ(nvcc_hint(word).kind, NvccOption::kUnknown) << word;
}

TEST(NvccWordsTest, TheValueBehindAWordIsJoinedToIt) {
  constexpr const char* kTakes = "NVRTC takes it, as --option";
  EXPECT_EQ(nvcc_hint("-Xptxas", "-O1").advice, kTakes + std::string("=-Xptxas=-O1"));
  EXPECT_EQ(nvcc_hint("-maxrregcount", "64").advice,
            kTakes + std::string("=-maxrregcount=64"));
  EXPECT_EQ(nvcc_hint("-Xptxas").advice, kTakes + std::string("=-Xptxas=VALUE"));
  EXPECT_EQ(nvcc_hint("-fmad", "k.cu").advice, kTakes + std::string("=-fmad=VALUE"));
  EXPECT_EQ(nvcc_hint("-lineinfo", "-G").advice, kTakes + std::string(" -lineinfo"));
  EXPECT_EQ(nvcc_hint("-Xptxas=-v", "-G").advice, kTakes + std::string(" -Xptxas=-v"));
}

}  // namespace
}  // namespace kiln::request
