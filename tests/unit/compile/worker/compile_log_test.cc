#include "compile/worker/compile_log.h"

#include "tests/support/test.h"

namespace kiln::compile {
namespace {

// Written by NVRTC 13.0 for sm_80, with a function that was not inlined in between.
constexpr std::string_view kLog13 =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'g' for 'sm_80'\n"
    "ptxas info    : Function properties for g\n"
    "ptxas         .     240 bytes stack frame, 0 bytes spill stores, 0 bytes spill "
    "loads\n"
    "ptxas info    : Used 44 registers, used 0 barriers, 240 bytes cumulative stack "
    "size, 364 bytes cmem[0]\n"
    "ptxas info    : Compile time = 14.236 ms\n"
    "ptxas info    : Function properties for _Z1fPKfi\n"
    "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 8 bytes spill "
    "loads\n"
    "ptxas info    : Compiling entry function 'e' for 'sm_80'\n"
    "ptxas info    : Function properties for e\n"
    "ptxas         .     72 bytes stack frame, 72 bytes spill stores, 76 bytes spill "
    "loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 72 bytes cumulative stack "
    "size, 256 bytes smem, 364 bytes cmem[0]\n";

// The form of NVRTC 11 and 12: no margin before the frame, two kinds of shared memory.
constexpr std::string_view kLog12 =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function '_Z1kIfEvPT_' for 'sm_70'\n"
    "ptxas info    : Function properties for _Z1kIfEvPT_\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 10 registers, 256+16 bytes smem, 360 bytes cmem[0], 24 bytes "
    "lmem\n";

TEST(CompileLog, ReadsWhatNvrtc13Says) {
  EXPECT_THAT(parse_resource_use(kLog13),
              ElementsAre(ResourceUse{.entry = "g",
                                      .registers = 44,
                                      .static_shared_bytes = 0,
                                      .stack_bytes = 240,
                                      .spill_store_bytes = 0,
                                      .spill_load_bytes = 0},
                          ResourceUse{.entry = "e",
                                      .registers = 32,
                                      .static_shared_bytes = 256,
                                      .stack_bytes = 72,
                                      .spill_store_bytes = 72,
                                      .spill_load_bytes = 76}));
}

TEST(CompileLog, ReadsWhatNvrtc12Says) {
  EXPECT_THAT(parse_resource_use(kLog12), ElementsAre(ResourceUse{
                                              .entry = "_Z1kIfEvPT_",
                                              .registers = 10,
                                              .static_shared_bytes = 272,
                                              .stack_bytes = 24,
                                              .spill_store_bytes = 0,
                                              .spill_load_bytes = 0,
                                          }));
}

TEST(CompileLog, SurvivesEveryTruncation) {
  for (const auto log : {kLog12, kLog13}) {
    for (std::size_t size = 0; size < log.size(); ++size)
      EXPECT_LE(parse_resource_use(log.substr(0, size)).size(), 2U);
  }
}

TEST(CompileLog, SkipsWhatItDoesNotKnow) {
  EXPECT_THAT(parse_resource_use("hello\nptxas info : Used many registers\n"),
              IsEmpty());
  EXPECT_THAT(parse_resource_use("ptxas info    : Used 99999999999999999999 registers"),
              IsEmpty());
}

TEST(CompileLog, DiagnosticsAreWhatAPersonReads) {
  const std::string warning = "kernel.cu(1): warning #177-D: variable \"x\" is unused";
  EXPECT_EQ(diagnostics(warning + "\n" + std::string(kLog13)), warning);
  EXPECT_EQ(diagnostics(kLog13), "");
  EXPECT_EQ(diagnostics(kLog12), "");
  // As it comes where nobody cut off the C string's end.
  EXPECT_EQ(diagnostics(warning + std::string("\n\0 \n\0", 5)), warning);
}

TEST(CompileLog, OfALongTextTheBeginningAndTheEndAreKept) {
  EXPECT_EQ(shortened("abcdef", 3), "abcdef");
  EXPECT_EQ(shortened("abcXXdef", 3), "abc\n[... 2 bytes are left out here ...]\ndef");
  const std::string umlaut = "\xC3\xA4";
  EXPECT_EQ(shortened("ab" + umlaut + "XX" + umlaut + "ef", 3),
            "ab\n[... 6 bytes are left out here ...]\nef")
      << "no half character is kept";
  EXPECT_LE(shortened(std::string(4U << 20U, '\x80')).size(), 600U << 10U)
      << "also not of what is no text";
}

TEST(CompileLog, KnowsTheCompilersOwnOutOfMemory) {
  EXPECT_TRUE(says_out_of_memory("kernel.cu(7): catastrophic error: out of memory\n"));
  EXPECT_TRUE(says_out_of_memory("x\nptxas fatal   : Memory allocation failure\n"));
}

TEST(CompileLog, ASourceCannotPretendToBeOutOfMemory) {
  EXPECT_FALSE(says_out_of_memory(
      "kernel.cu(1): catastrophic error: #error directive: \"ptxas fatal   : Memory "
      "allocation failure\"\n  #error \"ptxas fatal   : Memory allocation "
      "failure\"\n"));
  EXPECT_FALSE(says_out_of_memory(
      "kernel.cu(1): catastrophic error: #error directive: catastrophic error: out of "
      "memory\n"));
  EXPECT_FALSE(says_out_of_memory(""));
}

}  // namespace
}  // namespace kiln::compile
