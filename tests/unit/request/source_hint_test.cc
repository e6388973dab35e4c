// What is said of a source that NVRTC refuses: names, options of nvcc, host code.

#include "request/source_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "request/nvcc_words.h"
#include "request/source_kernels.h"

namespace kiln::request {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Kernels = std::vector<SourceKernel>;

TEST(SourceKernelsTest, FindsWhatAnAuthorCallsAKernel) {
  EXPECT_EQ(kernels_in(R"(
      // __global__ void in_a_comment() {}
      /* __global__ void in_another(); */
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

constexpr const char* kNames = "__nv_name_map(2): error: identifier \"x\" is undefined";

SourceOptions with_names(std::vector<std::string> names) {
  SourceOptions source;
  source.source =
      "__global__ void my_add() {}\n"
      "template <class T> __global__ void scale(T* x) {}\n";
  source.file_name = "dir/kernel.cu";
  source.name_expressions = std::move(names);
  return source;
}

TEST(SourceHintTest, AWrongNameListsTheKernelsThatTheSourceHas) {
  EXPECT_THAT(source_hints(with_names({"my_ad"}), kNames),
              ElementsAre("there is no kernel 'my_ad' in kernel.cu; it has my_add, "
                          "scale<...>, did you mean 'my_add'?"));
  EXPECT_THAT(source_hints(with_names({"a::scale"}), kNames),
              ElementsAre(HasSubstr("name an instance, such as scale<float>")));
  EXPECT_THAT(source_hints(with_names({"my_add<int>"}), kNames),
              ElementsAre(HasSubstr("my_add is no template")));
  EXPECT_THAT(source_hints(with_names({"scale<none>", "my_add", "&variable"}), kNames),
              IsEmpty());
  SourceOptions none = with_names({"k"});
  none.source = "";
  EXPECT_THAT(source_hints(none, kNames), ElementsAre(HasSubstr("it has none")));
}

TEST(SourceHintTest, AnOptionOfNvccHasItsSpelling) {
  SourceOptions source;
  source.options = {"-O3", "-lineinfo", "--extended-lambda"};
  EXPECT_THAT(source_hints(source, "nvrtc: error: unrecognized option -O3 found"),
              ElementsAre(HasSubstr("nvcc's -O3: device code is always optimized"),
                          HasSubstr("nvcc's --extended-lambda: a lambda")));
}

TEST(SourceHintTest, HostCodeIsToBeGuarded) {
  const auto hints = [](const char* text, const char* log) {
    SourceOptions source;
    source.source = text;
    return source_hints(source, log);
  };
  EXPECT_THAT(hints("void f() { k<<<1, 1>>>(); }", "error: identifier"),
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
        "-rdc=true", "--split-compile=2"})
    EXPECT_EQ(nvcc_hint(word).kind, NvccOption::kOfNvrtc) << word;
  for (const char* const word :
       {"-O3", "-std=c++20", "-gencode", "-arch=sm_90", "--expt-relaxed-constexpr",
        "-Xcompiler", "-ccbin", "-m64", "-lcudart", "-L/usr/lib", "-Werror", "-t"})
    EXPECT_EQ(nvcc_hint(word).kind, NvccOption::kElsewhere) << word;
  for (const char* const word : {"--jsn", "-q", "", "-", "--", "--lineinfo2", "-tx"})
    EXPECT_EQ(nvcc_hint(word).kind, NvccOption::kUnknown) << word;
}

}  // namespace
}  // namespace kiln::request
