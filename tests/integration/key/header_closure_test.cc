// The scan against the real compiler: NVRTC runs in this process, which sees every file
// that it opens.

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "key/header_scan.h"
#include "key/key.h"
#include "key/opened_files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace {

struct Recorder {
  std::mutex mutex;
  bool recording = false;
  std::vector<kiln::OpenedFile> opened;
  std::vector<std::filesystem::path> missed;
};

Recorder& recorder() {
  // NOLINTNEXTLINE(*-avoid-non-const-global-variables): fopen() has no other way to it
  static auto* const instance = new Recorder;
  return *instance;
}

std::FILE* record(const char* function, const char* path, const char* mode) {
  using Open = std::FILE*(const char*, const char*);
  std::FILE* const file =
      reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, function))(path, mode);
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (all.recording) {
    if (file != nullptr && !std::filesystem::is_directory(path))
      all.opened.push_back(
          {std::filesystem::absolute(path), kiln::stamp_of(::fileno(file))});
    else
      all.missed.push_back(std::filesystem::absolute(path));
  }
  return file;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) std::FILE* fopen(const char* path,
                                                                   const char* mode) {
  return record("fopen", path, mode);
}
extern "C" __attribute__((visibility("default"))) std::FILE* fopen64(const char* path,
                                                                     const char* mode) {
  return record("fopen64", path, mode);
}

namespace kiln::key {
namespace {

using testing::IsSubsetOf;

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The functions of NVRTC that a compile needs.
struct Nvrtc {
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;

  static const Nvrtc* instance() {
    static const auto* const loaded = load();
    return loaded;
  }

 private:
  static const Nvrtc* load() {
    const fs::path prefix = fs::path(KILN_CUDA_INCLUDE_DIR).parent_path();
    std::vector<fs::path> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
    for (const char* folder : {"lib64", "lib"}) {
      for (const char* name : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"})
        names.insert(names.end() - 2, prefix / folder / name);
    }
    if (const char* path = std::getenv("KILN_NVRTC"))  // NOLINT(concurrency-mt-unsafe)
      names.insert(names.begin(), path);
    void* library = nullptr;
    for (const fs::path& name : names) {
      if ((library = ::dlopen(name.c_str(), RTLD_NOW)) != nullptr)
        break;
    }
    if (library == nullptr)
      return nullptr;
    auto* const api = new Nvrtc;
    const auto bind = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    };
    bind(api->create, "nvrtcCreateProgram");
    bind(api->compile, "nvrtcCompileProgram");
    bind(api->log_size, "nvrtcGetProgramLogSize");
    bind(api->log, "nvrtcGetProgramLog");
    bind(api->destroy, "nvrtcDestroyProgram");
    return api;
  }
};

struct Compiled {
  nvrtcResult result;
  std::string log;
  std::vector<OpenedFile> opened;
  std::vector<fs::path> missed;
};

Compiled compile(const SourceKeyInput& input, const fs::path& toolkit) {
  const Nvrtc& nvrtc = *Nvrtc::instance();
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const MemoryHeader& header : input.memory_headers) {
    texts.push_back(header.text.c_str());
    names.push_back(header.name.c_str());
  }
  std::vector<std::string> options = input.options;
  for (const fs::path& dir : input.include_dirs) options.push_back("-I" + dir.native());
  options.push_back("-I" + toolkit.native());
  options.push_back("-I" + (toolkit / "cccl").native());
  std::vector<const char*> raw_options;
  raw_options.reserve(options.size());
  for (const std::string& option : options) raw_options.push_back(option.c_str());

  nvrtcProgram program = nullptr;
  nvrtc.create(&program, input.source.c_str(), kProgramName,
               static_cast<int>(texts.size()), texts.data(), names.data());
  fs::current_path(kWorkingDirectory);
  recorder().opened.clear();
  recorder().missed.clear();
  recorder().recording = true;
  const nvrtcResult result =
      nvrtc.compile(program, static_cast<int>(raw_options.size()), raw_options.data());
  recorder().recording = false;
  std::size_t size = 0;
  nvrtc.log_size(program, &size);
  std::string log(size, '\0');
  nvrtc.log(program, log.data());
  nvrtc.destroy(&program);
  return {result, log, recorder().opened, recorder().missed};
}

class HeaderClosureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Nvrtc::instance() == nullptr)
      GTEST_SKIP() << "no NVRTC found";
    input_.include_dirs = {one_, two_};
    fs::create_directories(one_);
    fs::create_directories(two_);
  }

  HeaderSnapshot scan() {
    auto result = HeaderScanner(dir_.path() / "memo")
                      .scan(input_, {{toolkit_, toolkit_ / "cccl"}});
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result->headers : HeaderSnapshot{};
  }
  // Of this test's own headers: those in the key, and those that NVRTC opened.
  std::set<std::string> own(const std::vector<fs::path>& paths) {
    std::set<std::string> result;
    for (const fs::path& path : paths) {
      if (fs::is_regular_file(path) &&
          path.native().starts_with(dir_.path().native() + "/"))
        result.insert(fs::canonical(path));
    }
    return result;
  }
  std::set<std::string> own(const std::vector<OpenedFile>& files) {
    std::vector<fs::path> paths;
    for (const OpenedFile& file : files) paths.push_back(file.path);
    return own(paths);
  }
  std::set<std::string> own(const HeaderSnapshot& headers) {
    std::vector<fs::path> paths;
    for (const HeaderFile& file : headers.files) paths.push_back(file.path);
    return own(paths);
  }
  struct Seen {
    HeaderSnapshot headers;
    Compiled compiled;
    std::optional<Unkeyed> unkeyed;
  };
  Seen look() {
    const HeaderSnapshot headers = scan();
    const Compiled compiled = compile(input_, toolkit_);
    EXPECT_EQ(compiled.result, NVRTC_SUCCESS) << compiled.log;
    return {headers, compiled,
            find_unkeyed(headers, {compiled.opened, std::chrono::system_clock::now(),
                                   compiled.missed})};
  }
  enum class Match { kExact, kAtLeast };

  // Every file that the compiler opens is in the key, and no other.
  Seen expect_same_files(Match match = Match::kExact) {
    const Seen seen = look();
    if (match == Match::kExact) {
      EXPECT_EQ(own(seen.compiled.opened), own(seen.headers));
    } else {
      EXPECT_THAT(own(seen.compiled.opened), IsSubsetOf(own(seen.headers)));
    }
    EXPECT_FALSE(seen.unkeyed) << seen.unkeyed->path << " " << seen.unkeyed->reason;
    return seen;
  }

  test::TempDir dir_;
  fs::path one_ = dir_.path() / "one";
  fs::path two_ = dir_.path() / "two";
  fs::path toolkit_ = KILN_CUDA_INCLUDE_DIR;
  SourceKeyInput input_;
};

TEST_F(HeaderClosureTest, HoldsEveryFileThatNvrtcOpensForNestedHeadersAndCub) {
  write(one_ / "d/a.h", "#include \"b.h\"\n#include <cuda_bf16.h>\n");
  write(one_ / "d/b.h", "#pragma once\n#include \"../c.h\"\n#include <d/a2.h>\n");
  write(one_ / "c.h", "#ifdef NEVER\n#include \"never.h\"\n#endif\n");
  write(one_ / "never.h", "");
  write(two_ / "d/a2.h", "#include <cub/block/block_reduce.cuh>\n");
  input_.source = "#include <d/a.h>\n__global__ void f(__nv_bfloat16*) {}\n";
  const Seen seen = expect_same_files(Match::kAtLeast);
  EXPECT_GT(seen.compiled.opened.size(), 300U);
  EXPECT_EQ(own(seen.headers).size(), 5U);
}

TEST_F(HeaderClosureTest, LeavesAComputedIncludeToTheReport) {
  write(one_ / "conf.h", "");
  input_.source = "#define STR(x) #x\n#include STR(conf.h)\n__global__ void f() {}\n";
  const auto unkeyed = look().unkeyed;
  ASSERT_TRUE(unkeyed);
  EXPECT_EQ(unkeyed->path, one_ / "conf.h");
  EXPECT_THAT(unkeyed->reason, HasSubstr("STR(conf.h)"));
}

TEST_F(HeaderClosureTest, SeesAHeaderThatHidesOneOfTheToolkits) {
  // CUB asks for it in angles, so that the request's own folder comes first.
  write(one_ / "nv/target",
        "#include <" + (toolkit_ / "cccl/nv/target").native() + ">");
  input_.source = "#include <cub/util_type.cuh>\n__global__ void f() {}\n";
  EXPECT_THAT(own(expect_same_files(Match::kAtLeast).compiled.opened), Not(IsEmpty()));
}

TEST_F(HeaderClosureTest, LooksInMemoryFirstWhoeverAsks) {
  write(one_ / "d/a.h", "#include \"m.h\"\n#include <m.h>\n");
  write(one_ / "d/m.h", "#error not in memory\n");
  write(two_ / "b.h", "");
  input_.source = "#include <d/a.h>\n__global__ void f() {}\n";
  input_.memory_headers = {{"m.h", "#include \"b.h\"\n"}};
  expect_same_files();
}

TEST_F(HeaderClosureTest, LooksInTheIncludersFolderUnlessTold) {
  write(one_ / "d/a.h", "#include \"b.h\"\n");
  write(one_ / "d/b.h", "");
  write(two_ / "b.h", "");
  input_.source = "#include <d/a.h>\n__global__ void f() {}\n";
  expect_same_files();
  input_.options = {"-no-source-include"};
  expect_same_files();
}

TEST_F(HeaderClosureTest, GoesOnWithTheNextFolder) {
  write(one_ / "a.h", "#include_next <a.h>\n");
  write(two_ / "a.h", "#include \"sub/b.h\"\n");
  write(two_ / "sub/b.h", "#include_next \"b.h\"\n");
  write(one_ / "b.h", "");
  input_.source = "#include <a.h>\n__global__ void f() {}\n";
  expect_same_files();
}

TEST_F(HeaderClosureTest, PassesOverFoldersAndTriesTheStandardSuffix) {
  fs::create_directories(one_ / "plain");
  write(two_ / "plain", "");
  write(one_ / "other.stdh", "");
  write(two_ / "other", "");
  input_.source = "#include <plain>\n#include <other>\n__global__ void f() {}\n";
  expect_same_files();
}

TEST_F(HeaderClosureTest, FollowsPreIncludesAndConditions) {
  write(one_ / "pre.h", "#if __has_include(<asked.h>)\n#endif\n");
  write(two_ / "asked.h", "");
  input_.source = "__global__ void f() {}\n";
  input_.options = {"--pre-include=pre.h"};
  expect_same_files();
}

// Random trees of headers that include each other by every spelling. With #include_next
// among them the compiler may see less than all: the second way to a #pragma once
// header would go on elsewhere, and is not gone.
TEST_F(HeaderClosureTest, IsTheCompilersOwnForRandomTrees) {
  const std::vector<std::string> folders = {"one", "one/x", "one/x/y", "two", "two/x"};
  const std::vector<std::string> names = {"a.h", "b.h", "c.h", "d.h", "e"};
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const bool goes_on = seed % 2 == 1;
    const auto pick = [&](const std::vector<std::string>& list) {
      return list[random() % list.size()];
    };
    fs::remove_all(one_);
    fs::remove_all(two_);
    input_.memory_headers.clear();
    const std::vector<std::string> prefixes = {"", "x/", "x/y/", "../", "y/"};
    const auto text = [&](bool once = true) {
      std::string result = once ? "#pragma once\n" : "";
      for (unsigned i = 0; i < 3; ++i) {
        const std::string name = pick(prefixes) + pick(names);
        const std::string quoted = "\"" + name + "\"";
        const std::string spelled = random() % 2 == 0 ? quoted : "<" + name + ">";
        const std::string next = goes_on && random() % 3 == 0 ? "_next" : "";
        result += fmt::format("#if __has_include{0}({1})\n#include{0} {1}\n#endif\n",
                              next, spelled);
      }
      return result;
    };
    for (unsigned i = 0; i < 10; ++i)
      write(dir_.path() / pick(folders) / pick(names), text());
    input_.memory_headers = {{pick(prefixes) + pick(names),
                              "#ifndef M\n#define M\n" + text(false) + "#endif\n"}};
    input_.source = text() + text() + "__global__ void f() {}\n";
    expect_same_files(goes_on ? Match::kAtLeast : Match::kExact);
  }
}

}  // namespace
}  // namespace kiln::key
