// kiln inspect: its documents and verdicts, on made files; and on what nvcc makes, with
// cuobjdump as the judge, where there is one.

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/fat_binary_builder.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/second_user.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::fat_binary;
using test::host_library;
using test::made_cubin;

class ProgramDeviceCodeTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const Bytes& bytes) {
    test::write_file(kiln_.folder() / name, bytes);
    return kiln_.folder() / name;
  }
  /// With SASS for 9.0 and PTX for 8.0, of CUDA 13.0.
  static Bytes library(std::uint16_t machine = EM_X86_64) {
    return host_library(
        fat_binary({{.kind = 2, .sm = 90, .image = made_cubin()},
                    {.kind = 1, .sm = 80, .isa_major = 9, .isa_minor = 0}}),
        ".nv_fatbin", machine);
  }
  json files(Arguments arguments, int status = 0) {
    arguments.insert(arguments.begin(), "inspect");
    return kiln_.json_of(arguments, status)["files"];
  }
  static std::vector<std::string> verdicts(const json& file) {
    std::vector<std::string> found;
    for (const json& each : file["devices"])
      found.push_back(each["arch"].get<std::string>() + " " +
                      each["verdict"].get<std::string>());
    return found;
  }
  void simulate(const std::string& devices, const std::string& version = "13000") {
    kiln_.set("KILN_DRIVER", test::paths::kSimulatedDriver);
    kiln_.set("KILN_SIMULATED_DEVICES", devices);
    kiln_.set("KILN_SIMULATED_DRIVER_VERSION", version);
  }

  test::KilnProgram kiln_;
};

TEST_F(ProgramDeviceCodeTest, TheDocumentListsImagesAndVerdicts) {
  const auto path = write("libx.so", library());
  const json all = files({path, "--arch", "sm_90,8.6", "--arch", "7.5"}, 1);
  ASSERT_EQ(all.size(), 1);
  EXPECT_EQ(all[0]["path"], path);
  EXPECT_EQ(all[0]["images"][0], (json{{"kind", "ptx"},
                                       {"arch", "8.0"},
                                       {"bytes", 0},
                                       {"compression", "none"},
                                       {"toolkit", "13.0"},
                                       {"count", 1},
                                       {"relocatable", false}}));
  EXPECT_EQ(all[0]["images"][1]["kind"], "sass");
  EXPECT_THAT(verdicts(all[0]),
              ElementsAre("9.0 runs", "8.6 compiles_at_load", "7.5 fails"));
  const json& fails = all[0]["devices"][2];
  EXPECT_THAT(fails["reason"], HasSubstr("(CUDA error 209)"));
  EXPECT_THAT(fails["remedy"], HasSubstr("TORCH_CUDA_ARCH_LIST=\"7.5\""));
  const auto shown = kiln_.run({"inspect", path, "--arch", "8.6"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_THAT(shown.out, AllOf(HasSubstr("9.0   sass       1"),
                               HasSubstr("8.6 compiles_at_load: the driver compiles")));
}

TEST_F(ProgramDeviceCodeTest, DevicesHereAndTheirDriverAreJudged) {
  const auto path = write("libx.so", library());
  EXPECT_EQ(files({path})[0]["devices"], json::array());
  EXPECT_THAT(kiln_.run({"inspect", path}).err, HasSubstr("--arch 8.0,9.0"));
  EXPECT_EQ(kiln_.run({"inspect", path, "--arch", "native"}).status, 2);
  simulate("9.0,10.0");
  EXPECT_THAT(verdicts(files({path})[0]),
              ElementsAre("9.0 runs", "10.0 compiles_at_load"));
  EXPECT_THAT(
      verdicts(files({path, "--arch", "12.0,native"})[0]),
      ElementsAre("12.0 compiles_at_load", "9.0 runs", "10.0 compiles_at_load"));
  simulate("10.0", "12080");
  const json old = files({path}, 1)[0]["devices"][0];
  EXPECT_THAT(old["reason"], HasSubstr("(CUDA error 222): PTX built by CUDA 13.0"));
  EXPECT_EQ(old,
            files({path, "--arch", "10.0", "--driver", "12.8"}, 1)[0]["devices"][0]);
}

TEST_F(ProgramDeviceCodeTest, AFolderHasTheFilesWithDeviceCodeAndThoseDamaged) {
  write("f/libx.so", library());
  write("f/deep/k.cubin", made_cubin("sm_90a"));
  write("f/arm.so", library(EM_AARCH64));
  write("f/notes.txt", test::bytes_of("// none\n"));
  write("f/host.so", host_library({}, ".data"));
  Bytes cut = library();
  cut.resize(cut.size() / 2);
  write("f/cut.so", cut);
  const json all = files({kiln_.folder() / "f", "--arch", "9.0"}, 1);
  std::vector<std::string> paths;
  for (const json& file : all)
    paths.push_back(fs::path(file["path"]).lexically_relative(kiln_.folder() / "f"));
  EXPECT_THAT(paths, ElementsAre("arm.so", "cut.so", "deep/k.cubin", "libx.so"));
  EXPECT_EQ(all[0]["machine"], "AArch64");
  EXPECT_EQ(all[0]["error"], json());
  EXPECT_EQ(all[1]["error"]["code"], "corrupt");
  EXPECT_EQ(all[1]["images"], json::array());
  EXPECT_THAT(verdicts(all[2]), ElementsAre("9.0 runs"));
  EXPECT_THAT(kiln_.run({"inspect", kiln_.folder() / "f/arm.so"}).out,
              HasSubstr("arm.so, for AArch64\n"));
}

TEST_F(ProgramDeviceCodeTest, AFileWithoutDeviceCodeIsNoFailure) {
  const auto path = write("host.so", host_library({}, ".data"));
  const json all = files({path, "--arch", "9.0"});
  EXPECT_EQ(all[0]["images"], json::array());
  EXPECT_EQ(all[0]["devices"], json::array());
  EXPECT_THAT(kiln_.run({"inspect", path}).out, HasSubstr("no device code"));
}

TEST_F(ProgramDeviceCodeTest, WhatCannotBeReadIsAnErrorOfItsFile) {
  const auto good = write("libx.so", library());
  const auto text = write("text", test::bytes_of("a text"));
  const json all = files({text, good}, 1);
  EXPECT_EQ(all[0]["error"]["code"], "invalid_argument");
  EXPECT_THAT(all[0]["error"]["message"], HasSubstr("is no ELF file"));
  EXPECT_EQ(all[1]["error"], json());
}

TEST_F(ProgramDeviceCodeTest, WrongUsageIsOneSentence) {
  const auto path = write("libx.so", library());
  const std::vector<std::pair<Arguments, std::string>> cases{
      {{}, "name a file or a folder"},
      {{"none.so"}, "there is no file none.so"},
      {{path, "--arch", "compute_90"}, "not the architecture of a device"},
      {{path, "--arch", "x"}, "'x'"},
      {{path, "--driver", "12.8"}, "--driver goes with --arch"},
      {{"--python", path}, "no environment of Python"},
      {{"--pid", "x"}, "--pid"},
      {{"--pid", "1073741823"}, "there is no process 1073741823"}};
  for (const auto& [arguments, sentence] : cases) {
    const auto finished = kiln_.run(Arguments{"inspect"} + arguments);
    EXPECT_EQ(finished.status, 2) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr(sentence));
  }
}

TEST_F(ProgramDeviceCodeTest,
       LibrariesOfPythonHaveTheirDistributionAndDoctorCountsThem) {
  write("env/lib/python3.11/site-packages/x/_C.so", library());
  write("env/lib/python3.11/site-packages/x-1.2.dist-info/RECORD",
        test::bytes_of("x/_C.so,,\n"));
  const std::string root = kiln_.folder() / "env";
  const json all = files({"--python", root, "--arch", "9.0"});
  ASSERT_EQ(all.size(), 1);
  EXPECT_EQ(all[0]["distribution"], "x 1.2");
  const auto python_check = [&] {
    const json report = kiln_.json_of({"doctor"});
    for (const json& check : report["checks"]) {
      if (check["name"] == "python")
        return check;
    }
    return json();
  };
  kiln_.use_fake_nvrtc();
  kiln_.set("VIRTUAL_ENV", root);
  EXPECT_EQ(python_check()["detail"], root + ": 1 library with device code");
  EXPECT_EQ(python_check()["verdict"], "ok");
  simulate("7.5,9.0");
  EXPECT_EQ(python_check()["verdict"], "warn");
  EXPECT_THAT(python_check()["detail"], HasSubstr("1 fail: x 1.2 (_C.so) on 7.5: no "));
  EXPECT_THAT(python_check()["remedy"], HasSubstr("kiln inspect --python " + root));
}

TEST_F(ProgramDeviceCodeTest, AProcessOfAnotherUserIsLackOfRights) {
  EXPECT_EQ(files({"--pid", std::to_string(::getpid())}), json::array());
  if (!test::User::can_become_another())
    GTEST_SKIP() << "only root can become another user";
  fs::permissions(kiln_.folder(), fs::perms::all);
  const std::string parent = std::to_string(::getpid());
  EXPECT_EQ(test::User(12345).run([&]() -> std::string {
    const auto finished = kiln_.run({"inspect", "--pid", parent});
    return finished.status == 3 ? "" : finished.text();
  }),
            "");
}

/// What nvcc makes of a program, once for all tests.
class ProgramNvccTest : public ProgramDeviceCodeTest {
 protected:
  void SetUp() override {
    nvcc_ = variable("KILN_TEST_NVCC");
    cuobjdump_ = variable("KILN_TEST_CUOBJDUMP");
    if (nvcc_.empty() || cuobjdump_.empty())
      GTEST_SKIP() << "no nvcc of CUDA 13, or no cuobjdump, on this machine";
  }
  static std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  /// Runs the script in a folder with k.cu and linked.cu.
  void make(const std::string& script) {
    kiln_.write(
        "k.cu",
        "__device__ float table[256] = {1, 2, 3};\n"
        "__global__ void k(float* x) { x[threadIdx.x] = table[threadIdx.x]; }\n");
    kiln_.write("linked.cu",
                "__device__ float twice(float x) { return 2 * x; }\n"
                "__global__ void k(float* x) { x[threadIdx.x] = twice(x[0]); }\n");
    const fs::path bin = fs::path(nvcc_).parent_path();
    const auto finished = kiln_.run_in_shell(
        "set -e; cd '" + kiln_.folder().native() + "'; PATH='" + bin.native() +
        "':$PATH; G='-gencode arch=compute_75,code=sm_75 -gencode "
        "arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a "
        "-gencode arch=compute_100f,code=sm_100f'\n" +
        script);
    ASSERT_EQ(finished.status, 0) << finished.text();
  }
  /// "elf sm_90a", as often as cuobjdump lists it.
  std::multiset<std::string> listed(const std::string& file) {
    const auto finished =
        kiln_.run_in_shell("'" + cuobjdump_ + "' -all '" + file + "'");
    std::multiset<std::string> found;
    std::istringstream lines(finished.out);
    std::string kind;
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (std::regex_match(line, match, std::regex("Fatbin (\\w+) code:")))
        kind = match[1];
      else if (std::regex_match(line, match, std::regex("arch = (\\w+)")))
        found.insert(kind + " " + match[1].str());
    }
    EXPECT_FALSE(found.empty()) << finished.text();
    return found;
  }
  /// The same of kiln inspect.
  static std::multiset<std::string> inspected(const json& file) {
    static const std::map<std::string, std::string> names_of_kinds{
        {"sass", "elf"}, {"ptx", "ptx"}, {"ltoir", "nvvm"}};
    std::multiset<std::string> found;
    for (const json& image : file["images"]) {
      std::string arch = image["arch"];
      std::erase(arch, '.');
      for (int i = 0; i < image["count"]; ++i)
        found.insert(names_of_kinds.at(image["kind"]) + " sm_" + arch);
    }
    return found;
  }
  static std::set<std::string> all_of(const json& file, const char* member) {
    std::set<std::string> found;
    for (const json& image : file["images"])
      found.insert(image["kind"].get<std::string>() + " " +
                   image[member].get<std::string>());
    return found;
  }

  std::string nvcc_;
  std::string cuobjdump_;
};

TEST_F(ProgramNvccTest, CuobjdumpListsTheSameInEveryFormAndCompression) {
  make(R"(
nvcc $G -c -Xcompiler -fPIC --keep -o k.o k.cu
nvcc -shared -o libk.so k.o
images='--image3=kind=elf,sm=75,file=k.compute_75.cubin
  --image3=kind=elf,sm=80,file=k.compute_80.sm_80.cubin --image3=kind=ptx,sm=80,file=k.compute_80.ptx
  --image3=kind=elf,sm=90a,file=k.compute_90a.cubin --image3=kind=elf,sm=100f,file=k.compute_100f.cubin'
for mode in default size speed balance none; do
  fatbinary -64 --compress-mode=$mode --create=$mode.fatbin $images
done
fatbinary -64 --compress-all --compress-mode=speed --create=all.fatbin $images
nvcc -rdc=true -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=lto_90 \
  -gencode arch=compute_100a,code=[sm_100a,compute_100a] -c -o linked.o linked.cu
nvcc -rdc=true -arch=sm_80 -shared -Xcompiler -fPIC -o liblinked.so linked.cu
ar rcs libboth.a k.o linked.o
)");
  struct Made {
    const char* file;
    std::set<std::string> compression;
  };
  const std::vector<Made> made{
      {"k.o", {"sass none", "ptx zstd"}},
      {"libk.so", {"sass none", "ptx zstd"}},
      {"default.fatbin", {"sass none", "ptx zstd"}},
      {"size.fatbin", {"sass zstd", "ptx zstd"}},
      {"speed.fatbin", {"sass none", "ptx lz4"}},
      {"balance.fatbin", {"sass none", "ptx zstd"}},
      {"none.fatbin", {"sass none", "ptx none"}},
      {"all.fatbin", {"sass lz4", "ptx lz4"}},
      {"linked.o", {"sass zstd", "ltoir zstd", "ptx zstd"}},
      {"liblinked.so", {"sass none", "sass zstd", "ptx zstd"}},
      {"libboth.a", {"sass none", "sass zstd", "ltoir zstd", "ptx zstd"}}};
  for (const auto& [name, compression] : made) {
    SCOPED_TRACE(name);
    const json file = files({kiln_.folder() / name})[0];
    EXPECT_EQ(inspected(file), listed(kiln_.folder() / name));
    EXPECT_EQ(all_of(file, "compression"), compression);
    for (const json& image : file["images"])
      EXPECT_THAT(image["toolkit"].get<std::string>(),
                  StartsWith(image["kind"] == "ltoir" ? "" : "13."));
  }
  const json cubin = files({kiln_.folder() / "k.compute_100f.cubin"})[0];
  EXPECT_EQ(cubin["images"][0]["arch"], "10.0f");
  const json ptx = files({kiln_.folder() / "k.compute_80.ptx"})[0];
  EXPECT_EQ(ptx["images"][0]["kind"], "ptx");
  // Of code that was linked only the linked images count.
  const json linked =
      files({kiln_.folder() / "liblinked.so", "--arch", "8.0,9.0"}, 1)[0];
  EXPECT_THAT(verdicts(linked), ElementsAre("8.0 runs", "9.0 fails"));
  const json object = files({kiln_.folder() / "linked.o", "--arch", "8.0"}, 1)[0];
  EXPECT_THAT(object["devices"][0]["reason"], HasSubstr("before it is linked"));
}

TEST_F(ProgramNvccTest, ALibraryThatAProcessHasLoadedIsFoundAlsoOnceItIsDeleted) {
  make("nvcc -arch=sm_90 -shared -Xcompiler -fPIC -o libk.so k.cu");
  const auto library = kiln_.folder() / "libk.so";
  const auto finished = kiln_.run_in_shell(
      "LD_PRELOAD='" + library.native() + "' sleep 30 & P=$!; sleep 0.5\n" +
      "kiln inspect --pid $P --json; rm '" + library.native() + "'\n" +
      "kiln inspect --pid $P --arch 9.0 >&2; kill $P");
  EXPECT_EQ(finished.json()["files"][0]["path"], library.native());
  if (::geteuid() == 0) {  // the kernel opens what is deleted for root alone
    EXPECT_THAT(finished.err, HasSubstr("libk.so (deleted)"));
  }
}

}  // namespace
}  // namespace kiln
