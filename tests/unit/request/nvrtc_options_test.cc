#include "request/nvrtc_options.h"

#include <string>
#include <vector>

#include "request/resolve.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln::request {
namespace {

using Options = std::vector<std::string>;

NvrtcOptions read(const Options& options) {
  return test::value_of(read_nvrtc_options(options));
}

TEST(NvrtcOptionsTest, TheArchitectureIsTheTargetInEachSpelling) {
  for (const Options& options :
       {Options{"-arch=sm_90a"}, Options{"-arch", "sm_90a"},
        Options{"--gpu-architecture=sm_90a"}, Options{" --gpu-architecture=sm_90a "},
        Options{"--gpu-architecture", "sm_90a"}}) {
    const NvrtcOptions found = read(options);
    EXPECT_EQ(to_string(*found.target), "sm_90a") << options.front();
    EXPECT_THAT(found.others, IsEmpty());
  }
  EXPECT_EQ(to_string(*read({"-arch=compute_80"}).target), "compute_80");
  EXPECT_EQ(to_string(*read({"-dlto", "-arch=sm_80"}).target), "lto_80");
  EXPECT_EQ(read({"-lineinfo"}).target, std::nullopt);
}

TEST(NvrtcOptionsTest, FoldersAndMacrosKeepTheirOrder) {
  const NvrtcOptions found =
      read({"-Ia", "-I", "b", "-I=c", "-I d", "--include-path=e", "-DX", "-D", "Y=1",
            "-UX", "--define-macro=Z", "--undefine-macro", "Y"});
  EXPECT_THAT(found.include_dirs, ElementsAre("a", "b", "c", "d", "e"));
  std::vector<std::string> macros;
  for (const NvrtcMacro& macro : found.macros)
    macros.push_back((macro.is_defined ? "-D" : "-U") + macro.text);
  EXPECT_THAT(macros, ElementsAre("-DX", "-DY=1", "-UX", "-DZ", "-UY"));
}

TEST(NvrtcOptionsTest, SpellingsOfOneOptionAreOne) {
  EXPECT_THAT(read({"-fmad=false", "-G", "-Xptxas", "-v"}).others,
              ElementsAre("--fmad=false", "--device-debug", "--ptxas-options=-v"));
  EXPECT_THAT(read({"--fmad", "false", "--device-debug", "--ptxas-options=-v"}).others,
              ElementsAre("--fmad=false", "--device-debug", "--ptxas-options=-v"));
}

TEST(NvrtcOptionsTest, AValueIsNoOptionOfItsOwn) {
  const NvrtcOptions found = read({"-include", "-DX", "-Xptxas", "-I", "-D", "-G"});
  EXPECT_THAT(found.others, ElementsAre("--pre-include=-DX", "--ptxas-options=-I"));
  EXPECT_FALSE(found.has_paths);
}

TEST(NvrtcOptionsTest, PathsReachWhatDebuggersAndLinkersRead) {
  for (const char* const option : {"-G", "--device-debug", "-lineinfo", "-dlto"})
    EXPECT_TRUE(read({option}).has_paths) << option;
  EXPECT_FALSE(read({"-rdc=true", "-w"}).has_paths);
}

TEST(NvrtcOptionsTest, WhatIsNotAnImageOrIsNotKnownIsRefusedByName) {
  const auto expect_refused = [](const Options& options, const std::string& named,
                                 const std::string& why) {
    const auto found = read_nvrtc_options(options);
    ASSERT_FALSE(found) << named;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(found.error().message, HasSubstr("'" + named + "': " + why));
  };
  expect_refused({"--optix-ir"}, "--optix-ir", "its result is no cubin");
  expect_refused({"-fdevice-syntax-only"}, "-fdevice-syntax-only", "its result");
  expect_refused({"--pch"}, "--pch", "it reads or writes files");
  expect_refused({"--use-pch=x.pch"}, "--use-pch", "it reads or writes files");
  expect_refused({"--time=-"}, "--time", "its result differs in each compile");
  expect_refused({"--of-tomorrow"}, "--of-tomorrow", "Kiln does not know it");
  expect_refused({"sm_90"}, "sm_90", "Kiln does not know it");
  expect_refused({"--arch=sm_90"}, "--arch=sm_90", "Kiln does not know it");
  expect_refused({"-G=true"}, "-G=true", "Kiln does not know it");
}

TEST(NvrtcOptionsTest, OneArchitectureWithAValueIsPossible) {
  for (const Options& options :
       {Options{"-arch=sm_80", "-arch=sm_90"}, Options{"-arch"}, Options{"-arch=9.0"},
        Options{"-arch=native"}, Options{"-arch=sm_"}, Options{"-I"}, Options{"-D"}})
    EXPECT_EQ(read_nvrtc_options(options).error().code, ErrorCode::kInvalidArgument)
        << options.front();
}

SourceOptions as_nvrtc() {
  return {.source = "__global__ void k() {}",
          .file_name = "a/b.cu",
          .options = {"-arch=sm_90"},
          .as_nvrtc = true};
}

TEST(AsNvrtcTest, OnlyTheOptionsSayWhatIsWanted) {
  EXPECT_EQ(to_string(*test::value_of(resolve_source(as_nvrtc())).target), "sm_90");
  for (const auto& change : std::vector<void (*)(SourceOptions&)>{
           [](SourceOptions& of) { of.include_dirs = {"/x"}; },
           [](SourceOptions& of) { of.defines = {"X"}; },
           [](SourceOptions& of) { of.target = "9.0"; },
           [](SourceOptions& of) { of.file_name = std::string("a\0b", 3); },
           [](SourceOptions& of) { of.options.emplace_back("--pch"); }}) {
    SourceOptions source = as_nvrtc();
    change(source);
    EXPECT_EQ(resolve_source(source).error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kiln::request
