// `kiln compile` of what has to be linked: relocatable device code, LTO-IR, several
// sources, device code that starts kernels. With the real NVRTC and nvJitLink.

#include <set>
#include <string>
#include <vector>

#include "device/cubin.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

constexpr const char* kMain =
    "extern __device__ float twice(float);\n"
    "__device__ float table[4];\n"
    "template <typename T> __global__ void scale(T* x) { *x = twice(*x) + table[1]; }\n"
    "extern \"C\" __global__ void k(float* x) { *x = twice(*x); }\n";
constexpr const char* kTwice =
    "#include \"factor.h\"\n"
    "__device__ float twice(float x) { return FACTOR * x; }\n";
constexpr const char* kStartsKernels =
    "__global__ void child(int* x) { *x = 1; }\n"
    "extern \"C\" __global__ void parent(int* x) { child<<<1, 1>>>(x); }\n";

class ProgramLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    main_ = kiln_.write("main.cu", kMain);
    twice_ = kiln_.write("twice.cu", kTwice);
    kiln_.write("factor.h", "#define FACTOR 2\n");
    const auto probe = kiln_.run({"compile", main_, twice_, "--arch", "9.0"});
    if (probe.err.find("no libnvJitLink") != std::string::npos)
      GTEST_SKIP() << "there is no nvJitLink beside this NVRTC";
    kiln_.run({"clear", "--all", "--yes"});
  }

  json compile(test::KilnProgram::Arguments arguments, int status = 0) {
    arguments.insert(arguments.begin(), "compile");
    arguments.insert(arguments.end(), {"--arch", "9.0"});
    return kiln_.json_of(arguments, status);
  }
  static std::string key(const json& report) { return report["entries"][0]["key"]; }
  static std::string outcome(const json& report) {
    return report["entries"][0]["outcome"];
  }
  std::string error_of(test::KilnProgram::Arguments arguments, int status) {
    arguments.insert(arguments.begin(), {"compile", "--arch", "9.0"});
    const auto done = kiln_.run(arguments);
    EXPECT_EQ(done.status, status) << done.text();
    return done.err;
  }

  test::KilnProgram kiln_;
  std::string main_;
  std::string twice_;
};

TEST_F(ProgramLinkTest, SeveralSourcesAreOneCubinAndTheirObjectsAreKept) {
  const auto image = kiln_.folder() / "linked.cubin";
  const json report = compile({main_, twice_, "--name", "scale<float>", "--name",
                               "&table", "-o", image.string()});
  ASSERT_EQ(report["requested"], 1);
  EXPECT_EQ(outcome(report), "compiled");
  EXPECT_TRUE(report["entries"][0]["stored"]);
  const auto cubin = device::read_cubin(*read_file(image, 1U << 20U).value()).value();
  EXPECT_EQ(cubin.capability, (ComputeCapability{9, 0}));
  std::vector<std::string> kernels;
  for (const auto& entry : cubin.entry_points) kernels.push_back(entry.name);
  EXPECT_THAT(kernels, testing::UnorderedElementsAre("k", "_Z5scaleIfEvPT_"));
  EXPECT_THAT(cubin.variables, Contains("table"));

  const json shown = kiln_.json_of({"show", key(report)});
  EXPECT_EQ(shown["kind"], "cubin");
  EXPECT_GT(shown["registers"], 0);
  EXPECT_THAT(shown["entry_points"].dump(), HasSubstr("scale<float>"));
  EXPECT_THAT(kiln_.object_files(), SizeIs(3)) << "the cubin and two objects";
  EXPECT_EQ(kiln_.run({"verify"}).status, 0);
  EXPECT_EQ(
      outcome(compile({main_, twice_, "--name", "scale<float>", "--name", "&table"})),
      "hit");
}

TEST_F(ProgramLinkTest, AChangedHeaderOfOneSourceIsAnotherLinkAndTheRestIsReused) {
  const std::string before = key(compile({main_, twice_}));
  kiln_.write("factor.h", "#define FACTOR 3\n");
  const json after = compile({main_, twice_});
  EXPECT_EQ(outcome(after), "compiled");
  EXPECT_NE(key(after), before);
  EXPECT_THAT(kiln_.object_files(), SizeIs(5)) << "main.cu was not compiled again";
  kiln_.write("factor.h", "#define FACTOR 2\n");
  EXPECT_EQ(key(compile({main_, twice_})), before);
}

TEST_F(ProgramLinkTest, EveryInputOfALinkIsInItsKey) {
  std::set<std::string> keys{key(compile({main_, twice_}))};
  const auto is_new = [&](test::KilnProgram::Arguments arguments) {
    return keys.insert(key(compile(std::move(arguments)))).second;
  };
  EXPECT_TRUE(is_new({twice_, main_})) << "their order";
  EXPECT_TRUE(is_new({main_, twice_, "--link-option=-maxrregcount=32"}));
  EXPECT_TRUE(is_new({main_, twice_, "--option", "-dlto"}));
  const std::string object = (kiln_.folder() / "twice.ltoir").string();
  kiln_.json_of({"compile", twice_, "--arch", "lto_90", "-o", object});
  EXPECT_TRUE(is_new({main_, "--option", "-dlto", "--link", object}));
  EXPECT_EQ(kiln_.run({"verify"}).status, 0);
}

TEST_F(ProgramLinkTest, LtoIrIsAnImageOfItsOwnAndWhatALinkUses) {
  const json object = kiln_.json_of({"compile", twice_, "--arch", "lto_90"});
  EXPECT_EQ(object["entries"][0]["arch"], "lto_90");
  EXPECT_EQ(kiln_.json_of({"show", key(object)})["kind"], "ltoir");
  EXPECT_THAT(kiln_.json_of({"ls", "--arch", "lto_90"})["entries"], SizeIs(1));
  compile({main_, twice_, "--option", "-dlto"});
  EXPECT_THAT(kiln_.object_files(), SizeIs(3)) << "twice.cu was not compiled again";
}

TEST_F(ProgramLinkTest, OneRelocatableSourceIsLinkedToo) {
  const std::string whole =
      kiln_.write("whole.cu",
                  "__device__ __noinline__ int f(int x) { return x; }\n"
                  "extern \"C\" __global__ void k(int* x) { *x = f(*x); }\n");
  const auto image = (kiln_.folder() / "whole.cubin").string();
  for (const char* option : {"-rdc=true", "-dc", "-dlto"}) {
    const json report = compile({whole, "--option", option, "-o", image});
    EXPECT_EQ(outcome(report), option == std::string("-dc") ? "hit" : "compiled")
        << option << ": -dc is another spelling";
    const auto cubin = device::read_cubin(*read_file(image, 1U << 20U).value());
    EXPECT_EQ(cubin->entry_points.size(), 1U);
  }
}

TEST_F(ProgramLinkTest, APtxFileIsLinked) {
  const auto twice = kiln_.write(
      "twice.ptx",
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .func (.param .b32 r) "
      "twice(.param .b32 x) {\n.reg .b32 %r<2>;\nld.param.u32 %r1, [x];\nst.param.b32 "
      "[r], %r1;\nret;\n}\n");
  const auto source = kiln_.write(
      "uses.cu",
      "extern \"C\" __device__ int twice(int);\nextern \"C\" __global__ void "
      "k(int* x) { *x = twice(*x); }\n");
  EXPECT_EQ(outcome(compile({source, "--link", twice})), "compiled");
}

TEST_F(ProgramLinkTest, AKernelOfPtxIsNamedAsThePtxOrTheSourceHasIt) {
  const auto ptx = kiln_.write(
      "two.ptx",
      ".version 7.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry pk() {\nret;\n}\n.visible .entry _Z5otheri(.param .u32 x) "
      "{\nret;\n}\n");
  EXPECT_EQ(outcome(compile({ptx})), "compiled");
  EXPECT_EQ(outcome(compile({ptx, "--name", "pk", "--name", "other"})), "hit");
  EXPECT_THAT(error_of({ptx, "--name", "pc"}, 2),
              HasSubstr("two.ptx has no kernel 'pc'; it has pk, _Z5otheri, did you "
                        "mean 'pk'?"));
  EXPECT_THAT(error_of({kiln_.write("no.ptx", "int x;"), "--name", "k"}, 2),
              HasSubstr("no.ptx: "));
  // Of several, names are for the first that is no PTX.
  const auto source =
      kiln_.write("t.cu", "template <int N> __global__ void t(int* x) { *x = N; }\n");
  EXPECT_EQ(outcome(compile({ptx, source, "--name", "t<3>"})), "compiled");
}

TEST_F(ProgramLinkTest, ATextThatALinkDoesNotHaveIsThatOfItsObjects) {
  const std::string link = key(compile({main_, twice_}));
  for (const std::string text : {"--source", "--ptx"}) {
    const auto shown = kiln_.run({"show", link, text});
    EXPECT_EQ(shown.status, 0);
    EXPECT_THAT(shown.out, testing::IsEmpty());
    ASSERT_THAT(shown.err, AllOf(HasSubstr("is a link, and has no "), HasSubstr(text)));
    const auto at = shown.err.find("kiln show ") + 10;
    EXPECT_THAT(kiln_.run({"show", shown.err.substr(at, 12), text}).out,
                HasSubstr("twice"));
  }
}

/// In a relocatable object both are sections of NVIDIA's own types, without bytes.
TEST_F(ProgramLinkTest, ARelocatableSourceMayHaveLargeSharedAndGlobalArrays) {
  const auto large = kiln_.write(
      "large.cu",
      "__device__ int global[1 << 20];\nextern \"C\" __global__ void k(int* x) { "
      "__shared__ int shared[8192]; shared[threadIdx.x] = *x; __syncthreads(); *x = "
      "shared[threadIdx.x ^ 1] + global[*x]; }\n");
  EXPECT_EQ(outcome(compile({large, "--option", "-rdc=true"})), "compiled");
}

TEST_F(ProgramLinkTest, WhatIsUndefinedIsNamedAndNotStored) {
  EXPECT_THAT(
      error_of({main_, "--option", "-rdc=true"}, 1),
      AllOf(HasSubstr("Undefined reference to '_Z5twicef'"), HasSubstr("main.cu")));
  EXPECT_THAT(kiln_.object_files(), SizeIs(1)) << "the object alone";
}

TEST_F(ProgramLinkTest, WhatDoesNotFitIsRefusedInWords) {
  EXPECT_THAT(error_of({main_, twice_, "--arch", "compute_90"}, 1),
              HasSubstr("nvJitLink makes a cubin"));
  const std::string garbage = kiln_.write("garbage.o", "no object at all");
  EXPECT_THAT(error_of({main_, twice_, "--link", garbage}, 1),
              AllOf(HasSubstr("garbage.o"), HasSubstr("unrecognized input")));
  EXPECT_THAT(error_of({main_, "--link", "/no/such.o"}, 2), HasSubstr("/no/such.o"));
  EXPECT_THAT(error_of({main_, twice_, "--link-option=-nonsense"}, 1),
              HasSubstr("unrecognized option: -nonsense"));
  EXPECT_THAT(error_of({main_, "--link-option=-arch=sm_80"}, 2),
              HasSubstr("'-arch=sm_80' is refused"));
  EXPECT_THAT(error_of({main_, "-", "-"}, 2), HasSubstr("only one source"));
}

TEST_F(ProgramLinkTest, DeviceCodeThatStartsKernelsGetsTheDeviceRuntime) {
  const std::string source = kiln_.write("parent.cu", kStartsKernels);
  const auto done = kiln_.run(
      {"compile", source, "--arch", "9.0", "--option", "-rdc=true", "--json"});
  if (done.status != 0) {
    EXPECT_THAT(done.text(),
                AllOf(HasSubstr("libcudadevrt.a"), HasSubstr("nvidia-cuda-runtime")));
    return;
  }
  const json shown = kiln_.json_of({"show", key(done.json())});
  EXPECT_THAT(shown["entry_points"].dump(),
              AllOf(HasSubstr("parent"), Not(HasSubstr("__nv_static"))))
      << "not those of the device runtime";
  EXPECT_GT(shown["size_bytes"], 100'000);
  const json without = compile({main_, twice_});
  EXPECT_EQ(outcome(compile({source, "--option", "-dlto"})), "compiled");
  EXPECT_LT(kiln_.json_of({"show", key(without)})["size_bytes"], 100'000)
      << "it is linked only where it is needed";
}

TEST_F(ProgramLinkTest, AWarmRecordsTheLinkerForMachinesWithoutOne) {
  const std::string manifest = kiln_.write(
      "m.jsonl",
      R"({"source":"extern \"C\" __global__ void k() {}","options":["-rdc=true"]})"
      "\n");
  const auto warm = [&] {
    return kiln_.json_of({"warm", "--manifest", manifest, "--arch", "9.0"});
  };
  EXPECT_EQ(warm()["compiled"], 1);
  const auto record = kiln_.cache_dir() / "toolchains/recorded.json";
  const std::string recorded = read_text_file(record, 1U << 16U).value();
  EXPECT_THAT(recorded, HasSubstr("\"nvjitlink\": \""));
  EXPECT_EQ(warm()["hits"], 1);
  kiln_.json_of({"warm", "--template", "scaled_softmax_fwd:dtype=bf16,max_cols=32",
                 "--arch", "9.0"});
  EXPECT_EQ(read_text_file(record, 1U << 16U).value(), recorded)
      << "kept by a warm that links nothing";
}

TEST_F(ProgramLinkTest, WhatReadsAFileThatIsInNoKeyIsUsedAndNotStored) {
  const std::string options = kiln_.write("ptxas.txt", "-O3\n");
  const test::KilnProgram::Arguments wanted = {
      "compile", main_, twice_,   "--option=-dlto",
      "--arch",  "9.0", "--json", "--link-option=-Xptxas=--options-file=" + options};
  const auto first = kiln_.run(wanted);
  EXPECT_EQ(first.status, 1) << "not stored";
  EXPECT_EQ(outcome(first.json()), "compiled");
  EXPECT_FALSE(first.json()["entries"][0]["stored"]);
  const auto said = first.err.find("the compiler read " + options);
  ASSERT_NE(said, std::string::npos) << first.err;
  EXPECT_EQ(first.err.find("the compiler read", said + 1), std::string::npos) << "once";
  kiln_.write("ptxas.txt", "-O0\n");
  EXPECT_EQ(outcome(kiln_.run(wanted).json()), "compiled") << "not what -O3 gave";
}

TEST_F(ProgramLinkTest, TwoProcessesLinkTheSameBytes) {
  const auto image = (kiln_.folder() / "linked.cubin").string();
  std::set<std::string> images;
  for (int i = 0; i < 2; ++i) {
    kiln_.run({"clear", "--all", "--yes"});
    EXPECT_EQ(outcome(compile({main_, twice_, "--option", "-dlto", "-o", image})),
              "compiled");
    images.insert(read_text_file(image, 1U << 20U).value());
  }
  EXPECT_THAT(images, SizeIs(1));
}

}  // namespace
}  // namespace kiln
