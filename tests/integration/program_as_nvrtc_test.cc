// `kiln compile --as-nvrtc`: the bytes, the log and the name are those of the program's
// own call of NVRTC, and nothing is added to it.

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/nvrtc.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

using Options = std::vector<std::string>;

constexpr const char* kSource = R"(
#include "beside.h"
#include <found.h>
template <class T> __global__ void k(T* p) { *p = BESIDE + FOUND + V; }
__device__ int g;
)";

class ProgramAsNvrtcTest : public testing::Test {
 protected:
  ProgramAsNvrtcTest() {
    kiln_.set("KILN_NVRTC", library_.native());
    kiln_.write("sub/k.cu", kSource);
    kiln_.write("sub/beside.h", "#define BESIDE 1\n");
    kiln_.write("inc/found.h", "#define FOUND 2\n");
  }

  /// Of a shell in the folder of the files, as each user's call is.
  test::Finished kiln(const Options& options, const std::string& more = "") {
    std::string command = "cd " + kiln_.folder().native() +
                          " && kiln compile sub/k.cu --as-nvrtc --arch 8.0 " + more;
    for (const std::string& option : options) command += " '--option=" + option + "'";
    return kiln_.run_in_shell(command);
  }
  Bytes image(const Options& options) {
    const auto done = kiln(options, "--name 'k<float>' --name '&g' -o out");
    EXPECT_EQ(done.status, 0) << done.text();
    return bytes("out");
  }
  /// What NVRTC itself makes of it, in a process of its own: the image, or its log.
  Bytes direct(const Options& options) {
    test::ChildProcess child([&] {
      std::ofstream(kiln_.folder() / "direct", std::ios::binary) << made(options);
      return 0;
    });
    EXPECT_EQ(child.wait(), 0);
    return bytes("direct");
  }
  Bytes bytes(const std::string& name) {
    return read_file(kiln_.folder() / name, 1U << 24U).value().value();
  }

  const fs::path library_ = test::nvrtc_libraries().front().path;
  test::KilnProgram kiln_;

 private:
  [[nodiscard]] std::string made(const Options& options) const {
    fs::current_path(kiln_.folder());
    ::setenv("PWD", kiln_.folder().c_str(), 1);
    if (const auto builtins = device::builtins_beside(library_, std::nullopt))
      ::dlopen(builtins->c_str(), RTLD_NOW);
    void* const opened = ::dlopen(library_.c_str(), RTLD_NOW);
    const auto call = [&]<typename Function>(Function /*type*/,
                                             const std::string& name) {
      return reinterpret_cast<Function>(::dlsym(opened, name.c_str()));
    };
    nvrtcProgram program = nullptr;
    call(decltype (&nvrtcCreateProgram)(), "nvrtcCreateProgram")(
        &program, kSource, "sub/k.cu", 0, nullptr, nullptr);
    for (const char* const name : {"k<float>", "&g"})
      call(decltype (&nvrtcAddNameExpression)(), "nvrtcAddNameExpression")(program,
                                                                           name);
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    const nvrtcResult compiled =
        call(decltype (&nvrtcCompileProgram)(), "nvrtcCompileProgram")(
            program, static_cast<int>(texts.size()), texts.data());
    const auto output = [&](const std::string& getter) {
      std::size_t size = 0;
      call(decltype (&nvrtcGetPTXSize)(), getter + "Size")(program, &size);
      std::string text(size, '\0');
      if (size > 0)
        call(decltype (&nvrtcGetPTX)(), getter)(program, text.data());
      return text;
    };
    if (compiled != NVRTC_SUCCESS)
      return output("nvrtcGetProgramLog");
    for (const char* const getter : {"nvrtcGetLTOIR", "nvrtcGetCUBIN"})
      if (std::string image = output(getter); !image.empty())
        return image;
    std::string ptx = output("nvrtcGetPTX");
    ptx.pop_back();  // the NUL
    return ptx;
  }
};

TEST_F(ProgramAsNvrtcTest, TheImageIsThatOfNvrtcByteForByte) {
  for (const Options& more : std::vector<Options>{
           {"-arch=sm_90"},
           {"-arch=compute_80"},
           {"--gpu-architecture=sm_90", "-dlto"},
           {"-arch", "sm_90", "-rdc=true", "-w"},
           {"-arch=sm_90", "-lineinfo"},
           {"-arch=compute_90", "-G"},
           {"-arch=sm_80", "--use_fast_math", "--std=c++14", "-maxrregcount=32"}}) {
    const Options options = more + Options{"-Iinc", "-DV=3"};
    SCOPED_TRACE(testing::PrintToString(options));
    EXPECT_EQ(image(options), direct(options));
    const auto again = kiln(options, "--name 'k<float>' --name '&g' --json");
    EXPECT_EQ(again.json()["entries"][0]["outcome"], "hit") << again.text();
  }
}

TEST_F(ProgramAsNvrtcTest, TheLogOfAnErrorIsThatOfNvrtc) {
  const Options options{"-arch=sm_90", "-DV=wrong"};
  const Bytes log = direct(options);
  const auto failed = kiln(options);
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.err,
              HasSubstr(std::string(as_text(log).substr(0, log.size() - 1))));
}

TEST_F(ProgramAsNvrtcTest, OneInputHasOneKeyHoweverItIsSpelled) {
  const auto key = [&](const std::string& more) {
    const auto done =
        kiln_.run_in_shell("cd " + kiln_.folder().native() +
                           " && kiln compile sub/k.cu --as-nvrtc --json " + more);
    EXPECT_EQ(done.status, 0) << done.text();
    return done.json()["entries"][0]["key"].get<std::string>();
  };
  const std::string expected = key("--arch 9.0 -I inc -D V=3");
  EXPECT_EQ(key("--arch 8.0 --option=-arch=sm_90 --option=-I --option=inc -D V=3"),
            expected);
  EXPECT_EQ(key("--arch 9.0 --option=-DV=3 --option=--include-path=inc"), expected);
  EXPECT_NE(key("--arch 9.0 -I inc -D V=4"), expected);
  EXPECT_NE(key("--arch 9.0 -I inc -D V=3 --option=-lineinfo"), expected);
}

TEST_F(ProgramAsNvrtcTest,
       TheKeyIsNotThatOfAnOrdinaryCompileAndHasTheNameWhereTheOutputMayHaveIt) {
  kiln_.write("other/k.cu", kSource);
  kiln_.write("other/beside.h", "#define BESIDE 1\n");
  const auto key = [&](const std::string& command) {
    return kiln_
        .run_in_shell("cd " + kiln_.folder().native() + " && kiln compile --arch 9.0 " +
                      command + " -I inc -D V=3 --json")
        .json()["entries"][0]["key"];
  };
  EXPECT_NE(key("sub/k.cu --as-nvrtc"), key("sub/k.cu"));
  EXPECT_NE(key("sub/k.cu --as-nvrtc"), key("other/k.cu --as-nvrtc"))
      << "each has a header beside it";
  kiln_.write("one.cu", "__device__ int n = 1;\n");
  kiln_.write("two.cu", "__device__ int n = 1;\n");
  EXPECT_EQ(key("one.cu --as-nvrtc"), key("two.cu --as-nvrtc"));
  for (const char* option : {"-lineinfo", "-DFILE=__FILE__"}) {
    const std::string with = fmt::format(" --as-nvrtc --option={}", option);
    EXPECT_NE(key("one.cu" + with), key("two.cu" + with)) << option;
  }
}

TEST_F(ProgramAsNvrtcTest, AHeaderThatChangesChangesTheKey) {
  const Options options{"-arch=sm_90", "-Iinc", "-DV=3"};
  image(options);
  kiln_.write("inc/found.h", "#define FOUND 5\n");
  EXPECT_EQ(image(options), direct(options));
  kiln_.write("sub/found.h",
              "#define FOUND 7\n");  // <found.h> is not beside the source
  EXPECT_EQ(image(options), direct(options));
}

TEST_F(ProgramAsNvrtcTest, WhatIsNoImageIsRefusedWithItsReason) {
  const auto refused = kiln({"--optix-ir", "-DV=3", "-Iinc"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("'--optix-ir': its result is no cubin"));
}

TEST_F(ProgramAsNvrtcTest, AManifestCarriesIt) {
  const json line{{"source", kSource},
                  {"file", "sub/k.cu"},
                  {"options", {"-arch=sm_90", "-Iinc", "-DV=3"}},
                  {"names", {"k<float>", "&g"}},
                  {"as_nvrtc", true}};
  image({"-arch=sm_90", "-Iinc", "-DV=3"});
  const std::string file = kiln_.write("m.jsonl", line.dump() + "\n");
  const json report = kiln_.json_of({"warm", "--manifest", file, "--arch", "9.0"});
  EXPECT_EQ(report["entries"][0]["outcome"], "hit") << report;
}

TEST_F(ProgramAsNvrtcTest, LsAndShowNameTheProgramAndItsKernels) {
  const Options options{"-arch=sm_90", "-Iinc", "-DV=3"};
  image(options);
  const auto name = HasSubstr("sub/k.cu: k<float>");
  EXPECT_THAT(kiln_.run({"ls"}).out, name);
  const json entry = kiln_.json_of({"ls"})["entries"][0];
  EXPECT_EQ(entry["file"], "sub/k.cu");
  EXPECT_EQ(entry["entry_points"][0]["name"], "k<float>");
  const std::string key = entry["key"];
  EXPECT_THAT(kiln_.run({"show", key}).out, name);
  const json shown = kiln_.json_of({"show", key});
  EXPECT_EQ(shown["file"], "sub/k.cu");
  EXPECT_EQ(shown["entry_points"], entry["entry_points"]);
  EXPECT_EQ(shown["variables"][0]["name"], "&g");
  EXPECT_EQ(kiln_.run({"show", key, "--source"}).out, kSource);
  // Of LTO-IR, which tells no kernels, those that are asked for.
  kiln_.run_in_shell("kiln clear --all --yes");
  image({"-arch=sm_90", "-Iinc", "-DV=3", "-dlto"});
  EXPECT_THAT(kiln_.run({"ls"}).out, HasSubstr("sub/k.cu: &g, k<float>"));
}

}  // namespace
}  // namespace kiln
