// `kiln compile`: a source of one's own, into the cache. What determines the output is
// in the key; what does not is not; what the key cannot know is not stored.

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>

#include "device/cubin.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/namespaces.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

class ProgramCompileTest : public testing::Test {
 protected:
  json compile(const std::string& file, test::KilnProgram::Arguments more = {},
               int status = 0) {
    more.insert(more.begin(), {"compile", file, "--arch", "9.0"});
    return kiln_.json_of(more, status);
  }
  static std::string key(const json& report) { return report["entries"][0]["key"]; }
  static std::string outcome(const json& report) {
    return report["entries"][0]["outcome"];
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramCompileTest, StandardInputIsASourceOfThatName) {
  const json file = compile(kiln_.write("standard input", test::kTinySource));
  EXPECT_EQ(outcome(file), "compiled");
  EXPECT_EQ(file["entries"][0]["file"], (kiln_.folder() / "standard input").string());
  const auto piped =
      kiln_.run({"compile", "-", "--arch", "sm_90", "--json"}, test::kTinySource);
  EXPECT_EQ(piped.status, 0) << piped.text();
  EXPECT_EQ(outcome(piped.json()), "hit");
  EXPECT_EQ(key(piped.json()), key(file));
  EXPECT_THAT(piped.err, IsEmpty());
}

// NVRTC quotes the whole line with each diagnostic.
TEST_F(ProgramCompileTest, WhatTheCompilerSaysOfAVeryLongLineIsShortened) {
  constexpr std::size_t kMost = 700U << 10U;
  const std::string filler(200'000, ' ');
  std::string wrong = "__global__ void k(int* x) {" + filler;
  std::string doubtful = wrong;
  for (int i = 0; i < 20; ++i) {
    wrong += "x[" + std::to_string(i) + "] = unknown_" + std::to_string(i) + ";";
    doubtful += "int unused_" + std::to_string(i) + ";";
  }
  const std::string file = kiln_.write("wrong.cu", wrong + "}\n");
  const auto failed = kiln_.run({"compile", file, "--arch", "9.0"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_LT(failed.err.size(), kMost);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("unknown_0"), HasSubstr("are left out here"),
                                HasSubstr("unknown_19")));
  EXPECT_LT(kiln_.run({"compile", file, "--arch", "9.0", "--json"}).out.size(), kMost);

  const std::string warned = kiln_.write("doubtful.cu", doubtful + "}\n");
  for (const char* const outcome : {"compiled", "hit"}) {
    const auto done = kiln_.run({"compile", warned, "--arch", "9.0"});
    EXPECT_THAT(done.out, HasSubstr(outcome));
    EXPECT_LT(done.err.size(), kMost);
    EXPECT_THAT(done.err, AllOf(HasSubstr("unused_0"), HasSubstr("are left out here")));
  }
}

TEST_F(ProgramCompileTest, ALimitOfFileSizesOnlyKeepsTheObjectFromBeingStored) {
  kiln_.write("k.cu", test::kTinySource);
  // sh counts 512 bytes, and stdout is a pipe: it has no limit.
  const json limited =
      kiln_.run_in_shell("(ulimit -f 1; kiln compile k.cu --arch 9.0 --json) | cat")
          .json();
  EXPECT_EQ(outcome(limited), "compiled");
  EXPECT_EQ(limited["not_stored"], 1);
  EXPECT_THAT(limited["entries"][0]["error"]["message"].get<std::string>(),
              HasSubstr("File too large"));
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
  const auto told = kiln_.run_in_shell("ulimit -f 1; kiln compile k.cu --arch 9.0");
  EXPECT_EQ(told.status, 1);
  EXPECT_THAT(told.out, HasSubstr("not stored"));
  EXPECT_THAT(told.err, AllOf(HasSubstr("first reason for not storing: "),
                              HasSubstr("File too large")));
}

TEST_F(ProgramCompileTest, AClosedStandardInputIsAnErrorAndNoOtherFile) {
  const auto piped =
      kiln_.run_in_shell("timeout -s KILL 60 kiln compile - --arch 9.0 <&-");
  EXPECT_EQ(piped.status, 1) << piped.text();
  EXPECT_THAT(piped.err, HasSubstr("read standard input: Bad file descriptor"));
}

TEST_F(ProgramCompileTest, ClosedOutputIsAnErrorAndNoOtherFile) {
  kiln_.write("k.cu", test::kTinySource);
  const auto silent = kiln_.run_in_shell("kiln compile k.cu --arch 9.0 >&-");
  EXPECT_EQ(silent.status, 1) << silent.text();
  EXPECT_THAT(silent.err, HasSubstr("write standard output: Bad file descriptor"));
  EXPECT_THAT(kiln_.object_files(), SizeIs(1)) << "it is built and stored";
  EXPECT_EQ(kiln_.run_in_shell("kiln compile k.cu --arch 9.0 <&- >&- 2>&-").status, 1);
}

TEST_F(ProgramCompileTest, WithTooFewDescriptorsTheErrorSaysSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan needs descriptors to look whether memory can be read";
#endif
  kiln_.write("k.cu", test::kTinySource);
  int failed = 0;
  for (int limit = 6; limit < 16; limit += 2) {
    const auto tried = kiln_.run_in_shell("ulimit -n " + std::to_string(limit) +
                                          "; kiln compile k.cu --arch 9.0");
    if (tried.status == 0 || tried.err.find("loading shared") != std::string::npos)
      continue;
    ++failed;
    EXPECT_THAT(tried.err, HasSubstr("Too many open files")) << limit;
  }
  EXPECT_GT(failed, 0);
}

TEST_F(ProgramCompileTest, TheFolderOfASourceIsNotInTheKey) {
  const std::string text = "#include \"a.h\"\n" + std::string(test::kTinySource);
  kiln_.write("one/a.h", "#define A 1\n");
  kiln_.write("two/deep/a.h", "#define A 1\n");
  const json one = compile(kiln_.write("one/k.cu", text));
  const json two = compile(kiln_.write("two/deep/k.cu", text));
  EXPECT_EQ(key(one), key(two));
  EXPECT_EQ(outcome(two), "hit");
}

TEST_F(ProgramCompileTest, IncludeFoldersAreSearchedInTheirOrder) {
  const std::string source = kiln_.write(
      "k.cu",
      "#include <value.h>\nextern \"C\" __global__ void k(int* x) { *x = V; }\n");
  kiln_.write("one/value.h", "#define V 1\n");
  kiln_.write("two/value.h", "#define V 2\n");
  const json one = compile(source, {"-I", "one", "-I", "two"});
  const json two = compile(source, {"-I", "two", "-I", "one"});
  EXPECT_NE(key(one), key(two));
  // The first decides: what only the second has does not matter.
  EXPECT_EQ(key(compile(source, {"-I", "one"})), key(one));
}

TEST_F(ProgramCompileTest, AnIncludeFolderThatIsNotThereIsNoErrorHoweverItIsGiven) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  const json plain = compile(source);
  EXPECT_EQ(key(compile(source, {"-I", "none"})), key(plain));
  EXPECT_EQ(key(compile(source, {"--option", "-Inone"})), key(plain));
  // It is named where a header is missing.
  const std::string asks = kiln_.write("asks.cu", "#include <mine.h>\n");
  for (const test::KilnProgram::Arguments& how :
       {test::KilnProgram::Arguments{"-I", "none"}, {"--option", "-Inone"}}) {
    const json report = compile(asks, how, 1);
    EXPECT_THAT(report["entries"][0]["error"]["message"].get<std::string>(),
                HasSubstr("there is no include directory " +
                          (kiln_.folder() / "none/").string()));
  }
}

TEST_F(ProgramCompileTest, NameExpressionsInstantiateTemplates) {
  const std::string source = kiln_.write(
      "k.cu", "template <class T, int N> __global__ void k(T* x) { *x = N; }\n");
  const json report = compile(source, {"--name", "k<float, 3>", "--name", "k<int,4>"});
  const json shown = kiln_.json_of({"show", key(report)});
  ASSERT_THAT(shown["entry_points"], SizeIs(2));
  EXPECT_EQ(shown["entry_points"][0]["name"], "k<float, 3>");
  EXPECT_EQ(shown["entry_points"][0]["lowered"], "_Z1kIfLi3EEvPT_");
  EXPECT_FALSE(shown.contains("variables"));
  const auto none = kiln_.run({"compile", source, "--arch", "9.0"});
  EXPECT_EQ(none.status, 1) << "an image without a kernel helps nobody";
  EXPECT_THAT(none.err, HasSubstr("no kernel"));
  const auto wrong = kiln_.run({"compile", source, "--arch", "9.0", "--name", "k<"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("k<"));
}

TEST_F(ProgramCompileTest, ShowsVariablesAndAlsoKernelsThatNoExpressionNames) {
  const std::string source =
      kiln_.write("k.cu",
                  "namespace ns { __device__ int table[4]; }\n"
                  "extern \"C\" __global__ void plain(int* x) { *x = ns::table[*x]; }\n"
                  "template <int N> __global__ void k(int* x) { *x = N; }\n");
  const json report = compile(source, {"--name", "k<3>", "--name", "&ns::table"});
  const json shown = kiln_.json_of({"show", key(report)});
  const json entries = {{{"name", "k<3>"}, {"lowered", "_Z1kILi3EEvPi"}},
                        {{"name", "plain"}, {"lowered", "plain"}}};
  EXPECT_EQ(shown["entry_points"], entries);
  const json variables = {{{"name", "&ns::table"}, {"lowered", "_ZN2ns5tableE"}}};
  EXPECT_EQ(shown["variables"], variables);
}

TEST_F(ProgramCompileTest, TheImageIsWrittenWhereItIsWanted) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  EXPECT_EQ(compile(source, {"-o", "k.cubin"})["compiled"], 1);
  const auto image = read_file(kiln_.folder() / "k.cubin", 1U << 20U).value().value();
  const auto cubin = device::read_cubin(image);
  ASSERT_TRUE(cubin) << cubin.error().message;
  EXPECT_THAT(cubin->entry_points, SizeIs(1));
  // A hit writes the same bytes. A link is followed and stays a link, as /dev/stdout is
  // one.
  kiln_.write("target", "longer than nothing");
  fs::create_symlink("target", kiln_.folder() / "link");
  EXPECT_EQ(kiln_.run({"compile", source, "--arch", "9.0", "-o", "link"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(kiln_.folder() / "link"));
  EXPECT_EQ(read_file(kiln_.folder() / "target", 1U << 20U).value().value(), image);
  const auto piped = kiln_.run({"compile", source, "--arch", "9.0", "-o", "-"});
  EXPECT_EQ(piped.status, 0);
  EXPECT_EQ(piped.out, as_text(image));
  EXPECT_EQ(kiln_.run({"compile", source, "--arch", "9.0", "-o", "-", "--json"}).status,
            2);
  // Nothing half-written is left beside it.
  for (const auto& entry : fs::directory_iterator(kiln_.folder()))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp")));
}

TEST_F(ProgramCompileTest, ASyntaxErrorIsShownAndNothingIsStored) {
  const std::string source = kiln_.write("bad.cu", "__global__ void k() { oops }\n");
  for (int i = 0; i < 2; ++i) {
    const auto failed = kiln_.run({"compile", source, "--arch", "9.0"});
    EXPECT_EQ(failed.status, 1);
    EXPECT_THAT(failed.err, AllOf(HasSubstr("bad.cu"), HasSubstr("\nbad.cu(1): error"),
                                  HasSubstr("oops")));
    EXPECT_THAT(failed.out, AllOf(HasSubstr("failed"), Not(HasSubstr("oops"))));
  }
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
  const json report = compile(source, {}, 1);
  EXPECT_EQ(report["entries"][0]["error"]["code"], "compile_failed");
}

TEST_F(ProgramCompileTest, TheCompilerSeesTheFilesNameWhichIsInTheKeyAndNotItsFolder) {
  const char* const text = "extern \"C\" __global__ void k(int* x) { *x = 1; }\n";
  struct Built {
    std::string key;
    std::string bytes;
  };
  for (const std::string option : {"-lineinfo", "-G"}) {
    SCOPED_TRACE(option);
    const auto built = [&](const std::string& name) {
      const std::string source = kiln_.write(name, text);
      const json report = compile(source, {"--option=" + option, "-o", "k.cubin"});
      return Built{key(report),
                   read_text_file(kiln_.folder() / "k.cubin", 1U << 20U).value()};
    };
    const Built first = built("own folder/attention.cu");
    EXPECT_THAT(first.bytes,
                AllOf(HasSubstr("attention.cu"), Not(HasSubstr("own folder"))));
    EXPECT_EQ(built("another/attention.cu").key, first.key);
    EXPECT_NE(built("own folder/other.cu").key, first.key);
    EXPECT_THAT(built("line\nbreak.cu").bytes, HasSubstr("line_break.cu"));
  }
}

TEST_F(ProgramCompileTest, NoWarningIsAboutAnOptionThatNobodyGave) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  for (const char* option : {"-std=c++20", "--std=c++20", "--std=c++17"}) {
    for (const char* outcome : {"compiled", "hit"}) {
      const auto finished =
          kiln_.run({"compile", source, "--arch", "9.0", "--option", option});
      EXPECT_EQ(finished.status, 0) << finished.err;
      EXPECT_THAT(finished.out, HasSubstr(outcome)) << option;
      EXPECT_EQ(finished.err, "") << option;
    }
  }
}

// Without a seed NVRTC puts its process id into names of internal linkage.
TEST_F(ProgramCompileTest, EqualInputsGiveEqualBytesInAnyProcess) {
  const std::string anonymous = kiln_.write(
      "anonymous.cu",
      "namespace { __device__ int g; __global__ void k(int* x) { *x = g; } }\n");
  const std::string headers = kiln_.write(
      "headers.cu",
      "#include <cooperative_groups.h>\n#include <cub/block/block_reduce.cuh>\n"
      "template <class T> __global__ void k(T* x) {\n"
      "  using Reduce = cub::BlockReduce<T, 128>;\n"
      "  __shared__ typename Reduce::TempStorage storage;\n"
      "  const T sum = Reduce(storage).Sum(x[threadIdx.x]);\n"
      "  auto tile = cooperative_groups::tiled_partition<32>(\n"
      "      cooperative_groups::this_thread_block());\n"
      "  x[0] = tile.shfl_down(sum, 1);\n}\n");
  for (const auto& each : {std::pair(anonymous, "k"), {headers, "k<int>"}}) {
    const std::string& source = each.first;  // clang 14 captures no structured binding
    const char* const name = each.second;
    const auto build = [&](const std::string& cache) {
      const auto built = kiln_.run({"compile", source, "--arch", "9.0", "--name", name,
                                    "--cache-dir", cache, "-o", "k.cubin", "--json"});
      if (built.err.find("open source file") != std::string::npos)
        return std::string();
      EXPECT_EQ(built.json()["compiled"], 1) << built.err;
      return read_text_file(kiln_.folder() / "k.cubin", 16U << 20U).value();
    };
    const std::string first = build("first");
    if (first.empty())
      GTEST_SKIP() << "the headers of CUB and cooperative groups are not here";
    EXPECT_TRUE(first == build("second")) << source;
  }
}

TEST_F(ProgramCompileTest, WarningsAreShownOnAHitToo) {
  const std::string source =
      kiln_.write("warn.cu", "extern \"C\" __global__ void k() { int unused; }\n");
  for (const char* outcome : {"compiled", "hit"}) {
    const auto finished = kiln_.run({"compile", source, "--arch", "9.0"});
    EXPECT_EQ(finished.status, 0);
    EXPECT_THAT(finished.out, HasSubstr(outcome));
    EXPECT_THAT(finished.err, AllOf(HasSubstr("warning"), HasSubstr("unused"),
                                    Not(HasSubstr("ptxas info"))));
  }
}

TEST_F(ProgramCompileTest, ClearAllForgetsWhatWasHashedToo) {
  compile(kiln_.write("k.cu", test::kTinySource));
  const auto memo = kiln_.cache_dir() / "memo";
  std::filesystem::create_directories(memo);
  std::filesystem::permissions(memo, std::filesystem::perms::owner_all);
  std::ofstream(memo / "headers") << "of a poisoned cache";
  EXPECT_EQ(kiln_.run({"clear", "--all", "--dry-run"}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(memo));
  EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(memo));
}

TEST_F(ProgramCompileTest, AComputedIncludeIsUsedAndNotStored) {
  const std::string source =
      kiln_.write("k.cu",
                  "#define NAME \"hidden.h\"\n#include NAME\n"
                  "extern \"C\" __global__ void k(int* x) { *x = V; }\n");
  kiln_.write("hidden.h", "#define V 1\n");
  const auto finished =
      kiln_.run({"compile", source, "--arch", "9.0", "-o", "k.cubin", "--json"});
  EXPECT_EQ(finished.status, 1) << finished.text();
  const json report = finished.json();
  EXPECT_EQ(report["compiled"], 1);
  EXPECT_EQ(report["not_stored"], 1);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["entries"][0]["stored"], false);
  EXPECT_THAT(finished.err, HasSubstr("hidden.h"));
  EXPECT_TRUE(fs::exists(kiln_.folder() / "k.cubin"));
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
  EXPECT_EQ(kiln_.json_of({"stats"})["counters"]["inputs_not_as_keyed"], 1);
}

TEST_F(ProgramCompileTest, TheToolkitsHeadersNeedNoOption) {
  if (device::include_roots_of({test::real_nvrtc().nvrtc, test::real_nvrtc().nvrtc})
          .empty())
    GTEST_SKIP() << "this NVRTC came without headers";
  const json report = compile(kiln_.write(
      "k.cu",
      "#include <cuda_fp16.h>\nextern \"C\" __global__ void k(__half* x) { *x = "
      "__float2half(2.0f); }\n"));
  EXPECT_EQ(report["compiled"], 1);
}

/// As Nix merges packages: links to the files of each. The library's own folder has no
/// headers beside it.
TEST_F(ProgramCompileTest, TheHeadersAreThoseBesideTheLinkToNvrtc) {
  const auto nvrtc = test::real_nvrtc();
  const auto roots = device::include_roots_of({nvrtc.nvrtc, nvrtc.nvrtc});
  if (roots.empty())
    GTEST_SKIP() << "this NVRTC came without headers";
  const fs::path store = kiln_.folder() / "store/lib";
  const fs::path merged = kiln_.folder() / "merged";
  fs::create_directories(store);
  fs::create_directories(merged / "lib");
  fs::create_directories(merged / "include");
  for (const fs::path& file : {nvrtc.nvrtc, nvrtc.builtins}) {
    fs::copy_file(file, store / file.filename());
    fs::create_symlink(store / file.filename(), merged / "lib" / file.filename());
  }
  for (const auto& each : fs::directory_iterator(roots.front()))
    fs::create_symlink(each.path(), merged / "include" / each.path().filename());
  const std::string source = kiln_.write(
      "k.cu",
      "#include <cuda_fp16.h>\n#include <cstdint>\nextern \"C\" __global__ void "
      "k(__half* x) { *x = __float2half(std::uint32_t{2}); }\n");
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"})
    kiln_.unset(name);
  kiln_.set("KILN_NVRTC", (store / nvrtc.nvrtc.filename()).native());
  const auto lone = kiln_.run({"compile", source, "--arch", "9.0"});
  EXPECT_EQ(lone.status, 1) << lone.text();
  EXPECT_THAT(lone.err, HasSubstr("CUDA_HOME"));
  kiln_.set("KILN_NVRTC", merged.native());
  EXPECT_EQ(compile(source)["compiled"], 1);
  const auto told = kiln_.run({"doctor"});
  EXPECT_THAT(told.out, HasSubstr((merged / "include").native()));
  kiln_.set("KILN_NVRTC", (store / nvrtc.nvrtc.filename()).native());
  kiln_.set("CUDA_HOME", merged.native());
  EXPECT_EQ(compile(source)["failed"], 0)
      << "of the toolkit that the environment names";
}

/// As Debian's packages have them: among glibc's, and listed by dpkg.
TEST_F(ProgramCompileTest, TheHeadersOfPackagesAreFoundAmongThoseOfGlibc) {
  const auto nvrtc = test::real_nvrtc();
  const fs::path usr_include = kiln_.folder() / "include";
  const fs::path lists = kiln_.folder() / "lists";
  const fs::path lone = kiln_.folder() / "lone/lib";
  for (const fs::path& folder : {usr_include, lists, lone})
    fs::create_directories(folder);
  std::ofstream list(lists / "nvidia-cuda-dev.list");
  for (const fs::path& root : device::include_roots_of({nvrtc.nvrtc, nvrtc.nvrtc})) {
    for (const auto& each : fs::recursive_directory_iterator(root)) {
      const fs::path name = each.path().lexically_relative(root);
      std::error_code exists;  // CCCL's are below a folder of the toolkit's as well
      fs::create_directories((usr_include / name).parent_path());
      if (each.is_regular_file())
        fs::create_symlink(each.path(), usr_include / name, exists);
      list << "/usr/include/" << name.native() << '\n';
    }
  }
  list.close();
  if (fs::is_empty(usr_include))
    GTEST_SKIP() << "this NVRTC came without headers";
  std::ofstream(usr_include / "stdio.h") << "#error glibc's\n";
  for (const fs::path& file : {nvrtc.nvrtc, nvrtc.builtins})
    fs::copy_file(file, lone / file.filename());
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"})
    kiln_.unset(name);
  kiln_.set("KILN_NVRTC", (lone / nvrtc.nvrtc.filename()).native());
  test::in_mount_namespace([&] {
    const auto put = [](const fs::path& what, const char* where) {
      return ::mount(what.c_str(), where, nullptr, MS_BIND, nullptr) == 0;
    };
    if (!put(usr_include, "/usr/include") || !put(lists, "/var/lib/dpkg/info"))
      return test::kImpossible;
    EXPECT_THAT(kiln_.run({"doctor"}).out, HasSubstr("the first build links to them"));
    EXPECT_EQ(compile(kiln_.write(
                  "k.cu",
                  "#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n"
                  "#include <stdio.h>\nextern \"C\" __global__ void k(__half* x) "
                  "{ *x = __float2half(cuda::std::uint32_t{2}); printf(\"x\"); }\n"))
                  ["compiled"],
              1);
    EXPECT_THAT(kiln_.run({"doctor"}).out, HasSubstr("(links to headers of packages)"));
    return 0;
  });
}

TEST_F(ProgramCompileTest, EveryOptionIsInTheKeyAndThoseOfKilnAreRefused) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  std::set<std::string> keys{key(compile(source))};
  for (const char* option : {"--use_fast_math", "--maxrregcount=32", "-lineinfo"})
    EXPECT_TRUE(keys.insert(key(compile(source, {"--option", option}))).second)
        << option;
  const auto unknown =
      kiln_.run({"compile", source, "--arch", "9.0", "--option", "--bogus"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("--bogus"));
}

TEST_F(ProgramCompileTest, SeveralArchitecturesAreSeveralObjects) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  const json report =
      kiln_.json_of({"compile", source, "--arch", "8.0,9.0", "--arch", "90a"});
  EXPECT_EQ(report["compiled"], 3);
  EXPECT_EQ(report["entries"][2]["arch"], "9.0a");
  EXPECT_THAT(kiln_.object_files(), SizeIs(3));
}

TEST_F(ProgramCompileTest, AVirtualArchitectureIsPtxBesideTheCubin) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  const json report = kiln_.json_of({"compile", source, "--arch", "8.0,compute_80"});
  ASSERT_EQ(report["compiled"], 2);
  EXPECT_EQ(report["entries"][0]["arch"], "8.0");
  EXPECT_EQ(report["entries"][1]["arch"], "compute_80");
  const std::string ptx = report["entries"][1]["key"];
  EXPECT_NE(ptx, key(report));
  EXPECT_EQ(report["min_driver"], kiln_.json_of({"show", ptx})["min_driver"])
      << "PTX needs a driver as new as its NVRTC";

  const json listed = kiln_.json_of({"ls", "--arch", "compute_80"});
  ASSERT_THAT(listed["entries"], SizeIs(1));
  EXPECT_EQ(listed["entries"][0]["key"], ptx);
  EXPECT_EQ(listed["entries"][0]["kind"], "ptx");
  const auto image = kiln_.folder() / "k.ptx";
  EXPECT_EQ(outcome(kiln_.json_of(
                {"compile", source, "--arch", "compute_80", "-o", image.string()})),
            "hit");
  EXPECT_THAT(read_text_file(image, 1U << 20U).value(), HasSubstr(".target sm_80"));

  const auto warned = kiln_.run({"warm", "--template", "scaled_softmax_fwd:dtype=bf16",
                                 "--arch", "compute_80", "--dry-run"});
  EXPECT_THAT(warned.err, AllOf(HasSubstr("no device asks for"),
                                HasSubstr("for compute_80"), HasSubstr("--arch 8.0")));
}

/// A copy of this machine's NVRTC in a folder of the test's own.
class ProgramNvrtcTest : public ProgramCompileTest {
 protected:
  void SetUp() override {
    folder_ = kiln_.folder() / "nvrtc";
    fs::create_directory(folder_);
    nvrtc_ = test::copy_of_real_nvrtc(folder_);
    if (nvrtc_.empty())
      GTEST_SKIP() << "this machine's NVRTC has no builtins beside it";
    builtins_ = folder_ / test::real_nvrtc().builtins.filename();
    kiln_.set("KILN_NVRTC", nvrtc_);
    source_ = kiln_.write("k.cu", test::kTinySource);
  }

  fs::path folder_;
  fs::path nvrtc_;
  fs::path builtins_;
  std::string source_;
};

TEST_F(ProgramNvrtcTest, WhereAToolchainIsInstalledIsNotInTheKey) {
  const json here = compile(source_);
  const fs::path moved = kiln_.folder() / "moved";
  fs::rename(folder_, moved);
  kiln_.set("KILN_NVRTC", moved / nvrtc_.filename());
  const json there = compile(source_);
  EXPECT_EQ(key(there), key(here));
  EXPECT_EQ(outcome(there), "hit");
}

TEST_F(ProgramNvrtcTest, AnotherLibraryUnderTheSameNameIsAnotherKey) {
  const json before = compile(source_);
  test::change_build_id(nvrtc_);
  const json after = compile(source_);
  EXPECT_EQ(outcome(after), "compiled");
  const json why = kiln_.json_of({"why", key(before), key(after)});
  ASSERT_THAT(why["differences"], SizeIs(1));
  EXPECT_THAT(why["differences"][0]["field"].get<std::string>(),
              HasSubstr("toolchain"));
}

TEST_F(ProgramNvrtcTest, OtherBuiltinsBesideItAreAnotherKey) {
  const json before = compile(source_);
  test::change_build_id(builtins_);
  const json after = compile(source_);
  EXPECT_EQ(outcome(after), "compiled");
  EXPECT_NE(key(after), key(before));
}

TEST_F(ProgramNvrtcTest, OtherBuiltinsOnTheLoadersPathAreNeverStoredUnderThisKey) {
  const json clean = compile(source_);
  fs::create_directory(kiln_.folder() / "other");
  const fs::path other = kiln_.folder() / "other" / builtins_.filename();
  fs::copy_file(builtins_, other);
  test::change_build_id(other);
  kiln_.set("LD_LIBRARY_PATH", other.parent_path());
  const auto finished = kiln_.run({"compile", source_, "--arch", "8.0", "--json"});
  const json report = finished.json();
  ASSERT_FALSE(report.is_null());
  // Either the loader took ours all the same, or the result was not kept.
  if (report["not_stored"] == 0) {
    EXPECT_EQ(finished.status, 0);
  } else {
    EXPECT_EQ(finished.status, 1);
    EXPECT_THAT(finished.err, AllOf(HasSubstr(other), HasSubstr("LD_LIBRARY_PATH")));
    EXPECT_EQ(kiln_.json_of({"stats"})["counters"]["toolchain_not_as_keyed"], 1);
    EXPECT_THAT(kiln_.object_files(), SizeIs(1));
  }
  RecordProperty("not_stored", report["not_stored"].dump());
  // What is there is served whatever the loader would find.
  EXPECT_EQ(outcome(compile(source_)), "hit");
  EXPECT_EQ(key(compile(source_)), key(clean));
}

}  // namespace
}  // namespace kiln
