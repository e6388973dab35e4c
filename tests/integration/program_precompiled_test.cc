// Precompiled headers as the program tells of them, and removes them.

#include <string>

#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

TEST(ProgramPrecompiledTest, PrecompiledHeadersAreShownTrimmedAndCleared) {
  test::KilnProgram kiln;
  const auto make = [&kiln](const char* name) {
    kiln.write("own.h", "#pragma once\n__device__ inline int own() { return 1; }\n");
    const auto source =
        kiln.write(name,
                   "#include \"own.h\"\nextern \"C\" __global__ void k(int* x) "
                   "{ *x = own(); }\n");
    ASSERT_EQ(kiln.run({"compile", source, "--arch", "9.0", "--option", "--pch", "-D",
                        name[0] == 'a' ? "A" : "B"})
                  .status,
              0);
  };
  make("a.cu");
  make("b.cu");
  const json stats = kiln.json_of({"stats"})["precompiled"];
  if (stats["entries"] == 0)
    GTEST_SKIP() << "this NVRTC or this build makes none";
  EXPECT_EQ(stats["entries"], 2);
  EXPECT_EQ(stats["limit_bytes"], 2ULL << 30U);
  for (const char* verb : {"stats", "doctor"})
    EXPECT_THAT(kiln.run({verb}).out, HasSubstr("precompiled headers: 2 headers, "));
  EXPECT_EQ(kiln.json_of({"trim"})["precompiled"], 0);
  kiln.set("KILN_PCH_SIZE",
           std::to_string(stats["bytes"].get<std::uint64_t>() - 1) + "B");
  EXPECT_EQ(kiln.json_of({"trim", "--dry-run"})["precompiled"], 1);
  EXPECT_EQ(kiln.run({"trim"}).out.find("removed 0 entries and 1 precompiled header, "),
            0U);
  EXPECT_EQ(kiln.json_of({"clear", "--precompiled", "--dry-run"})["precompiled"], 1);
  const json cleared = kiln.json_of({"clear", "--precompiled"});
  EXPECT_EQ(cleared["precompiled"], 1);
  EXPECT_EQ(cleared["removed"], 0) << "kernels stay";
  EXPECT_GT(cleared["freed_bytes"], 0);
  EXPECT_EQ(kiln.json_of({"stats"})["precompiled"]["bytes"], 0);
}

}  // namespace
}  // namespace kiln
