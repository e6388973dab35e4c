// What is said about a header that the compiler did not find.

#include "key/header_hint.h"

#include <sys/stat.h>

#include "files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln::key {
namespace {

/// What NVRTC 13.0 says; 12.9 says "cannot open".
std::string missing(const std::string& header) {
  return "nvrtcCompileProgram: NVRTC_ERROR_COMPILATION\nk.cu(1): catastrophic error: "
         "could not open source file \"" +
         header + "\" (no directories in search list)";
}

std::string hint(const std::string& message, const HeaderSnapshot& headers = {},
                 StandardHeaders standard = StandardHeaders::kSearched) {
  const Error error =
      with_header_hint({ErrorCode::kCompileFailed, message}, headers, standard);
  EXPECT_TRUE(error.message.starts_with(message));
  return error.message.substr(message.size());
}

TEST(HeaderHint, SaysWhyAStandardHeaderIsMissing) {
  const auto why = [](const std::string& header, StandardHeaders standard) {
    return hint(missing(header), {}, standard);
  };
  EXPECT_THAT(why("type_traits", StandardHeaders::kOff),
              AllOf(HasSubstr("-nostdinc++"), HasSubstr("<cuda/std/type_traits>")));
  EXPECT_THAT(why("stdint.h", StandardHeaders::kNoLibcudacxx),
              AllOf(HasSubstr("<cuda/std/cstdint>"), HasSubstr("nvidia-cuda-cccl")));
  EXPECT_THAT(why("version", StandardHeaders::kNotInstalled),
              HasSubstr("reinstall Kiln"));
  EXPECT_THAT(hint("k.cu(1): catastrophic error: cannot open source file \"limits\""),
              HasSubstr("write #include <limits> in the source"));
}

TEST(HeaderHint, SaysWhereTheToolkitsHeadersCanBeHad) {
  for (const char* const header : {"cuda_fp16.h", "cuda/std/limits", "cub/cub.cuh"}) {
    EXPECT_THAT(hint(missing(header), {}, StandardHeaders::kNoLibcudacxx),
                AllOf(HasSubstr(header), HasSubstr("nvidia-cuda-runtime")));
  }
  EXPECT_THAT(hint(missing("cuda/std/inplace_vector")), HasSubstr("a newer toolkit"));
  EXPECT_THAT(hint(missing("cuda_mine.h")), HasSubstr("by -I"));
}

TEST(HeaderHint, SaysWhereNothingStandsForIt) {
  EXPECT_THAT(hint(missing("vector")), HasSubstr("no <cuda/std/vector>"));
  EXPECT_THAT(hint(missing("stdio.h")), HasSubstr("keep <stdio.h> from NVRTC"));
}

TEST(HeaderHint, AsksForTheFolderOfAnyOtherHeader) {
  for (const char* const header :
       {"mine.h", "mine/scale.h", "array.h", "sub/limits", "a b", "limit"})
    EXPECT_EQ(hint(missing(header)), std::string("\nhint: no include directory has ") +
                                         header +
                                         ": name a directory that has it, by "
                                         "include_dirs, or by -I of `kiln compile`");
}

TEST(HeaderHint, IsNotGivenForOtherErrors) {
  for (const char* const header : {"", "/folder/mine.h"})
    EXPECT_EQ(hint(missing(header)), "") << header;
  EXPECT_EQ(hint("k.cu(1): error: identifier \"limits\" is undefined"), "");
  EXPECT_EQ(hint("could not open source file \"limits"), "");
  const Error other{ErrorCode::kTimeout, missing("limits")};
  EXPECT_EQ(with_header_hint(other, {}).message, other.message);
}

TEST(HeaderHint, NamesWhatIsThereInsteadOfAFile) {
  const test::TempDir dir;
  const std::string fifo = dir.path() / "one/a.h";
  const std::string folder = dir.path() / "two/b.h";
  std::filesystem::create_directories(folder);
  std::filesystem::create_directories(dir.path() / "one");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  HeaderSnapshot headers;
  headers.lookups.files = {{fifo, std::nullopt},
                           {folder, std::nullopt},
                           {dir.path() / "two/a.h", std::nullopt}};
  EXPECT_EQ(hint(missing("a.h"), headers),
            "\nhint: " + fifo + " is a FIFO: the compiler passes over it");
  EXPECT_EQ(hint(missing(fifo), headers), hint(missing("a.h"), headers));
  EXPECT_EQ(hint(missing("b.h"), headers),
            "\nhint: " + folder + " is a folder: the compiler passes over it");
  EXPECT_THAT(hint(missing(".h"), headers), HasSubstr("no include directory has .h"));
}

TEST(HeaderHint, NamesAnIncludeDirectoryThatIsNotThere) {
  const test::TempDir dir;
  HeaderSnapshot headers;
  headers.lookups.folders = {dir.path().native() + "/"};
  EXPECT_THAT(hint(missing("mine.h"), headers), HasSubstr("by -I"));
  headers.lookups.folders.push_back(dir.path() / "none/");
  EXPECT_EQ(hint(missing("mine.h"), headers),
            "\nhint: there is no include directory " + (dir.path() / "none/").native());
}

}  // namespace
}  // namespace kiln::key
