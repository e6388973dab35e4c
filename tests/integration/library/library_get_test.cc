// get(): from memory, from disk, built; each device what was built for it; and what it
// says when it cannot.

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "library_service.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using test::kSoftmax;
using test::LibraryTest;
using test::SimulatedDriver;
using Kind = Event::Kind;

constexpr auto kPatience = 30s;  // for what takes far less

class LibraryGetTest : public LibraryTest {
 protected:
  /// A family of one kernel, filled_fwd, that takes a pointer.
  static void write_template(const std::filesystem::path& folder,
                             const std::string& text) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "kernel.toml") << R"(schema = 1
default_set = [{}]
[targets]
minimum = "7.0"
[launch]
arguments.n = "elements"
grid = ["1"]
block = ["n"]
[[kernel]]
name = "filled_fwd"
summary = "fills"
source = "filled.cu.mustache"
entry_points = ["filled_fwd"]
)";
    std::ofstream(folder / "filled.cu.mustache") << text;
  }
};

TEST_F(LibraryGetTest, CompilesOnceThenFindsItInMemoryAndInANewServiceOnDisk) {
  const SimulatedDriver driver("8.6");
  auto service = open(driver);
  const Device device = service->devices().at(0);
  const auto first = test::value_of(service->get(kSoftmax, device));
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kCompiled, Kind::kLoaded));
  EXPECT_EQ(first.name(), "scaled_softmax_fwd:dtype=bf16,max_cols=128");
  EXPECT_EQ(first.key().size(), 64U);
  EXPECT_EQ(first.device(), device);
  EXPECT_EQ(first.entry_point(), "scaled_softmax_fwd");

  const auto second = service->get(kSoftmax, device);
  EXPECT_EQ(second->key(), first.key());
  EXPECT_EQ(second->function(), first.function());
  EXPECT_THAT(take_kinds(), IsEmpty());
  EXPECT_EQ(driver.loads(), 1U);
  EXPECT_EQ(service->statistics(),
            (Statistics{.memory_hits = 1, .compiled = 1, .loaded = 1}));

  auto other = open(driver);
  EXPECT_EQ(other->get(kSoftmax, device)->key(), first.key());
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kHit, Kind::kLoaded));
  EXPECT_EQ(other->statistics(), (Statistics{.disk_hits = 1, .loaded = 1}));
}

// Case: a 2080 and a 3090 in one process.
TEST_F(LibraryGetTest, TwoKindsOfDeviceEachGetTheBinaryBuiltForThem) {
  const SimulatedDriver driver("7.5,8.6");
  auto service = open(driver);
  const Device turing = service->devices().at(0);
  const Device ampere = service->devices().at(1);
  const auto on_turing = service->get(kSoftmax, turing);
  const auto on_ampere = service->get(kSoftmax, ampere);
  ASSERT_TRUE(on_turing && on_ampere);
  EXPECT_NE(on_turing->key(), on_ampere->key());
  EXPECT_EQ(driver.loads_on(0), 1U);
  EXPECT_EQ(driver.loads_on(1), 1U);
  for (const Kernel& kernel : {*on_turing, *on_ampere}) {
    const auto geometry = kernel.geometry({{"rows", 4}, {"cols", 128}});
    const auto launched = kernel.launch(geometry, nullptr, nullptr, nullptr, 1.0F,
                                        std::int64_t{4}, std::int64_t{128});
    EXPECT_TRUE(launched) << launched.error().message;
  }
  const auto launches = driver.launches();
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].device, 0);
  EXPECT_EQ(launches[1].device, 1);
}

TEST_F(LibraryGetTest, DevicesOfOneKindShareTheBinaryAndNotTheModule) {
  const SimulatedDriver driver("9.0,9.0");
  auto service = open(driver);
  const auto first = service->get(kSoftmax, service->devices().at(0));
  const auto second = service->get(kSoftmax, service->devices().at(1));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->key(), second->key());
  EXPECT_NE(first->function(), second->function());
  EXPECT_EQ(service->statistics().compiled, 1U);
  EXPECT_EQ(service->statistics().loaded, 2U);
}

TEST_F(LibraryGetTest, ARequestBuiltAnewIsFoundByItsSpelling) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(service->get({"scaled_softmax_fwd", {{"dtype", "f16"}}}, device));
  // Another spelling of the same kernel is found by its key.
  ASSERT_TRUE(service->get(
      {"scaled_softmax_fwd", {{"dtype", "f16"}, {"max_cols", "any"}}}, device));
  EXPECT_EQ(driver.loads(), 1U);
  EXPECT_EQ(service->statistics().memory_hits, 3U);
}

// CUTLASS's kernels are static, DeepGEMM takes their addresses.
TEST_F(LibraryGetTest, StaticAndUnnamedKernelsAreKernels) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  const auto only = service->get(
      Request::from_source({.source = "static __global__ void k(int* p) { *p = 1; }"}),
      device);
  ASSERT_TRUE(only) << only.error().message;
  EXPECT_EQ(only->entry_point(), "_Z1kPi");
  EXPECT_TRUE(only->launch(Geometry{}, nullptr, nullptr));
  const auto named = service->get(
      Request::from_source(
          {.source = "namespace { __global__ void hidden(int* p) { *p = 1; } }\n"
                     "extern \"C\" __global__ void shown(int* p) { *p = 2; }",
           .name_expressions = {"hidden"}}),
      device);
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_THAT(named->entry("hidden")->entry_point(), HasSubstr("hidden"));
  EXPECT_EQ(named->entry("shown")->entry_point(), "shown");
}

TEST_F(LibraryGetTest, AStaticKernelThatAnOldDriverDoesNotFindIsNamedWithTheRemedy) {
  const SimulatedDriver driver;
  ASSERT_EQ(driver.remove("cuModuleEnumerateFunctions"), 0);
  auto service = open(driver);
  const Device device = service->devices().at(0);
  const std::string text = "static __global__ void k(int* p) { *p = 1; }\n";
  EXPECT_THAT(service->get(Request::from_source({.source = text}), device),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("_Z1kPi, of local binding"),
                                  HasSubstr("CUDA 12.4"))));
  const auto both = service->get(
      Request::from_source(
          {.source = text + "extern \"C\" __global__ void plain(int* p) {}\n"}),
      device);
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->entry_point(), "plain");
  const auto refused = both->entry("_Z1kPi");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("it has plain;"), HasSubstr("of local binding")));
}

TEST_F(LibraryGetTest, ASourceAskedForAnewReadsItsHeadersAnew) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  const auto header = temp_.path() / "value.h";
  const SourceOptions source{
      .source =
          "#include \"value.h\"\n"
          "extern \"C\" __global__ void k(int* out) { *out = VALUE; }\n",
      .include_dirs = {temp_.path()}};
  std::ofstream(header) << "#define VALUE 1\n";
  const Request request = Request::from_source(source);
  const auto before = test::value_of(service->get(request, device));
  std::ofstream(header) << "#define VALUE 22\n";
  EXPECT_EQ(service->get(request, device)->key(), before.key())
      << "what a request is, is fixed when it is first resolved";
  EXPECT_NE(service->get(Request::from_source(source), device)->key(), before.key());
  EXPECT_EQ(driver.loads(), 2U);
}

TEST_F(LibraryGetTest, WhatDoesNotMatchItsKeyAnswersItsOwnRequestOnly) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  // Joined by the preprocessor: no reading of the text finds which header it is.
  std::ofstream(temp_.path() / "hidden_1.h") << "#define VALUE 1\n";
  const SourceOptions source{
      .source =
          "#define JOIN(a, b) a##b\n#define TEXT(a) #a\n#define NAME(a) TEXT(a)\n"
          "#include NAME(JOIN(hid, den_1.h))\n"
          "extern \"C\" __global__ void k(int* out) { *out = VALUE; }\n",
      .include_dirs = {temp_.path()}};
  const Request request = Request::from_source(source);
  test::in_threads(16, [&] { EXPECT_TRUE(service->get(request, device)); });
  EXPECT_EQ(service->statistics().compiled, 1U) << "once for this one";
  EXPECT_EQ(driver.loads(), 1U);
  std::vector<Kind> kinds = take_kinds();
  std::erase(kinds, Kind::kWaited);
  EXPECT_THAT(kinds, ElementsAre(Kind::kCompiled, Kind::kNotStored, Kind::kLoaded));
  ASSERT_TRUE(service->get(request, device));
  EXPECT_THAT(take_kinds(), IsEmpty());
  ASSERT_TRUE(service->get(Request::from_source(source), device));
  EXPECT_EQ(service->statistics().compiled, 2U);
}

/// The process id of a worker of this process other than `last`; 0 if there is none.
pid_t worker_after(pid_t last) {
  pid_t found = 0;
  test::eventually(kPatience, [&] {
    for (const pid_t worker : test::children_of(::getpid()))
      found = worker == last ? found : worker;
    return found != 0;
  });
  return found;
}

TEST_F(LibraryGetTest, AFailureThatMayBeOfAnotherHeaderAnswersItsOwnRequestOnly) {
  const SimulatedDriver driver;
  Options fake = options(driver);
  fake.nvrtc = test::paths::kFakeNvrtc;
  {  // so that the cache knows what the compiler is, and the next service asks nobody
    auto service = open(fake);
    ASSERT_TRUE(service->get(small_source(), service->devices().at(0)));
  }
  ::setenv("KILN_FAKE_NVRTC", "hang", 1);
  auto service = open(fake);
  ::unsetenv("KILN_FAKE_NVRTC");
  const Device device = service->devices().at(0);
  const auto with_folder = [&](const char* folder) {
    return Request::from_source(
        {.source = "#define JOIN(a, b) a##b\n#define TEXT(a) #a\n"
                   "#define NAME(a) TEXT(a)\n#include NAME(JOIN(hid, den_1.h))\n",
         .include_dirs = {temp_.path() / folder}});
  };
  std::jthread builds([&] {
    const auto crashed = service->get(with_folder("first"), device);
    EXPECT_EQ(crashed.error().code, ErrorCode::kWorkerCrashed);
  });
  const pid_t first = worker_after(0);
  ASSERT_NE(first, 0);
  std::stop_source stop;
  std::jthread waits([&] {  // it has the same key
    const auto cancelled = service->get(with_folder("other"), device, stop.get_token());
    EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled) << "of the first";
  });
  std::this_thread::sleep_for(500ms);
  ::kill(first, SIGKILL);
  const pid_t second = worker_after(first);  // such a build is tried once more
  ASSERT_NE(second, 0);
  ::kill(second, SIGKILL);
  builds.join();
  EXPECT_NE(worker_after(second), 0) << "the other builds its own";
  stop.request_stop();
}

TEST_F(LibraryGetTest, ThreadsThatAskAtOnceShareOneBuildAndOneLoad) {
  const SimulatedDriver driver("8.0,8.6");
  auto service = open(driver);
  test::in_threads(std::size_t{16}, [&](std::size_t i) {
    const Device& device = service->devices().at(i % 2);
    for (int kernel = 0; kernel < 3; ++kernel) {
      const auto got = service->get(small_source(kernel), device);
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(got->device(), device);
    }
  });
  EXPECT_EQ(service->statistics().compiled, 6U);
  EXPECT_EQ(driver.loads_on(0), 3U);
  EXPECT_EQ(driver.loads_on(1), 3U);
  EXPECT_EQ(driver.alive(KILN_SIMULATED_CONTEXTS), 2U);
}

TEST_F(LibraryGetTest, ADeviceNewerThanItsCompilerGetsAnImageThatRunsThere) {
  const SimulatedDriver driver("15.0");
  auto service = open(driver);
  const auto kernel = service->get(small_source(), service->devices().at(0));
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(driver.loads(), 1U);
}

TEST_F(LibraryGetTest, ADeviceTooOldForItsCompilerIsToldWhichOneBuildsForIt) {
  const SimulatedDriver driver("3.5");
  auto service = open(driver);
  EXPECT_THAT(service->get(small_source(), service->devices().at(0)),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("device 0"), HasSubstr("11."))));
  EXPECT_EQ(driver.loads(), 0U);
}

TEST_F(LibraryGetTest, ADriverOlderThanTheToolkitIsRefusedBeforeItSeesTheImage) {
  const SimulatedDriver driver("9.0");
  ASSERT_EQ(driver.set_driver_version(11080), 0);
  auto service = open(driver);
  EXPECT_THAT(service->get(small_source(), service->devices().at(0)),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("driver"), HasSubstr("11.8"),
                                  HasSubstr("device 0"))));
  EXPECT_EQ(driver.loads(), 0U);
  EXPECT_EQ(service->statistics().compiled, 0U) << "nothing is built for nobody";
}

TEST_F(LibraryGetTest, AFailureIsNotRemembered) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  ASSERT_EQ(driver.inject("cuModuleLoadDataEx", 1, 2), 0);  // out of memory, once
  EXPECT_THAT(
      service->get(small_source(), device),
      test::IsError(ErrorCode::kDevice,
                    AllOf(HasSubstr("cuModuleLoadDataEx"), HasSubstr("device 0"),
                          HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"))));
  EXPECT_TRUE(service->get(small_source(), device));
  EXPECT_EQ(service->statistics().failed, 1U);
}

TEST_F(LibraryGetTest, ALostContextOfOneDeviceLeavesTheOtherAlone) {
  const SimulatedDriver driver("8.6,8.6");
  auto service = open(driver);
  const auto lost = service->get(small_source(), service->devices().at(0));
  const auto well = service->get(small_source(), service->devices().at(1));
  ASSERT_TRUE(lost && well);
  ASSERT_EQ(driver.inject("cuLaunchKernel", 1, 700), 0);
  const Geometry geometry;
  EXPECT_FALSE(lost->launch(geometry, nullptr, nullptr, 1, 1.0F));
  const auto again = lost->launch(geometry, nullptr, nullptr, 1, 1.0F);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_FALSE(service->get(small_source(7), service->devices().at(0)));
  EXPECT_TRUE(well->launch(geometry, nullptr, nullptr, 1, 1.0F));
  EXPECT_TRUE(service->get(small_source(7), service->devices().at(1)));
}

TEST_F(LibraryGetTest, WrongRequestsAndForeignDevicesAreNamed) {
  const SimulatedDriver driver("8.6");
  auto service = open(driver);
  const Device device = service->devices().at(0);
  const auto misspelled = service->get({"scaled_softmax_fwt", {}}, device);
  EXPECT_THAT(misspelled,
              test::IsError(ErrorCode::kNotFound, HasSubstr("scaled_softmax_fwd")));
  EXPECT_THAT(
      service->get({"scaled_softmax_fwd", {{"dtype", "bf61"}}}, device).error().message,
      HasSubstr("bf16"));
  const auto broken =
      service->get(Request::from_source({.source = "this is no CUDA"}), device);
  EXPECT_THAT(broken, test::IsError(ErrorCode::kCompileFailed, HasSubstr("kernel.cu")));
  Device other = device;
  other.ordinal = 7;
  EXPECT_EQ(service->get(kSoftmax, other).error().code, ErrorCode::kInvalidArgument);
  other = device;
  other.capability = {9, 0};
  EXPECT_EQ(service->get(kSoftmax, other).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(driver.loads(), 0U);
  EXPECT_EQ(service->statistics().failed, 5U);
  ASSERT_TRUE(service->get(kSoftmax, device));
  EXPECT_EQ(service->get(kSoftmax, other).error().code, ErrorCode::kInvalidArgument)
      << "also once it is in memory";
}

TEST_F(LibraryGetTest, AStreamThatTheDriverRefusesIsAnErrorOfTheNamedOperation) {
  const SimulatedDriver driver("8.6");
  auto service = open(driver);
  int not_a_stream = 0;
  auto* const stream = reinterpret_cast<CUstream_st*>(&not_a_stream);
  std::vector<float> x(8), y(8);
  for (const std::int64_t queries : {0, 1}) {  // no launch, and one
    ASSERT_EQ(driver.inject("cuStreamGetCtx", 1, 400), 0);
    const auto refused = ops::softmax_forward(*service, service->devices()[0], stream,
                                              {.dtype = ops::DType::kF32,
                                               .y = y.data(),
                                               .x = x.data(),
                                               .sq = queries,
                                               .skv = 8});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr(", softmax_forward on device 0"));
  }
  EXPECT_THAT(take_kinds(), IsEmpty());
}

TEST_F(LibraryGetTest, EntryPointsAreChosenByExpressionOrLoweredName) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const auto kernel = service->get(
      Request::from_source(
          {.source = "template <typename T> __global__ void scale(T* x, T f) {\n"
                     "  x[threadIdx.x] *= f;\n}\n"
                     "extern \"C\" __global__ void plain() {}\n",
           .name_expressions = {"scale<float>", "scale<double>"}}),
      service->devices().at(0));
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->entry_point(), "");
  EXPECT_EQ(kernel->function(), nullptr);
  const auto unchosen = kernel->launch(Geometry{}, nullptr);
  ASSERT_FALSE(unchosen);
  EXPECT_THAT(unchosen.error().message, HasSubstr("entry()"));

  const auto as_float = test::value_of(kernel->entry("scale<float>"));
  EXPECT_TRUE(as_float.launch(Geometry{}, nullptr, nullptr, 2.0F));
  EXPECT_FALSE(as_float.launch(Geometry{}, nullptr, nullptr, 2.0));
  EXPECT_THAT(as_float.launch(Geometry{}, nullptr, nullptr, 2),
              test::IsError(ErrorCode::kInvalidArgument,
                            HasSubstr("is a whole number, and its parameter")));
  EXPECT_TRUE(
      kernel->entry("scale<double>")->launch(Geometry{}, nullptr, nullptr, 2.0));
  EXPECT_TRUE(kernel->entry("plain")->launch(Geometry{}, nullptr));
  EXPECT_TRUE(kernel->entry(as_float.entry_point()));
  EXPECT_EQ(kernel->entry("scale< float >")->entry_point(), as_float.entry_point());
  const auto unknown = kernel->entry("scale<int>");
  ASSERT_THAT(unknown, test::IsError(ErrorCode::kNotFound));
  for (const char* name : {"scale<float>", "scale<double>", "plain"})
    EXPECT_THAT(unknown.error().message, HasSubstr(name)) << "as it was asked for";
  EXPECT_FALSE(as_float.geometry({})) << "a source declares none";
}

TEST_F(LibraryGetTest, VariablesHaveAddressAndSizeByExpressionOrLoweredName) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const SourceOptions source{
      .source =
          "__constant__ float factors[3];\n"
          "namespace ns { __device__ double table[2]; }\n"
          "extern \"C\" __global__ void k(float* x) { *x *= factors[1]; }\n"
          "extern \"C\" __global__ void other() {}\n",
      .name_expressions = {"&ns::table", "k"}};
  const auto kernel = test::value_of(
      service->get(Request::from_source(source), service->devices().at(0)));
  EXPECT_EQ(kernel.entry_point(), "k") << "the only one that is named";
  EXPECT_TRUE(kernel.entry("other"));
  const auto table = test::value_of(kernel.global("&ns::table"));
  EXPECT_EQ(table.bytes, 16U);
  EXPECT_NE(table.address, 0U);
  EXPECT_EQ(kernel.global("ns::table"), table);
  EXPECT_EQ(kernel.global("_ZN2ns5tableE"), table);
  EXPECT_EQ(kernel.entry("other")->global("factors")->bytes, 12U);
  EXPECT_THAT(
      kernel.global("factor"),
      test::IsError(ErrorCode::kNotFound,
                    HasSubstr("no variable 'factor'; it has &ns::table, factors")));
  auto anew = open(driver);
  EXPECT_EQ(anew->get(Request::from_source(source), anew->devices().at(0))
                ->global("ns::table")
                ->bytes,
            16U)
      << "as read from the disk";
}

TEST_F(LibraryGetTest, PtxOfASourceServesEveryDeviceThatIsNotOlder) {
  const SimulatedDriver driver("7.5,8.6,9.0");
  Options with_record = options(driver);
  const auto record = temp_.path() / "record.jsonl";
  with_record.record = record;
  auto service = open(with_record);
  const SourceOptions source{
      .source =
          "__device__ double table[2];\n"
          "extern \"C\" __global__ void k(float* x) { *x = table[1]; }\n",
      .name_expressions = {"&table"},
      .target = "compute_80"};
  const Request request = Request::from_source(source);
  const std::vector<Device>& devices = service->devices();
  const auto ampere = test::value_of(service->get(request, devices.at(1)));
  const auto hopper = test::value_of(service->get(request, devices.at(2)));
  EXPECT_EQ(ampere.key(), hopper.key()) << "one build for both";
  EXPECT_THAT(take_kinds(),
              ElementsAre(Kind::kCompiled, Kind::kLoaded, Kind::kHit, Kind::kLoaded));
  const auto image = ampere.image();
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(image.data()), image.size()),
              HasSubstr(".target sm_80"));
  EXPECT_TRUE(hopper.launch(Geometry{}, nullptr, nullptr));

  EXPECT_THAT(service->get(request, devices.at(0)),
              test::IsError(ErrorCode::kInvalidArgument,
                            AllOf(HasSubstr("target compute_80"), HasSubstr("7.5"))));
  std::ifstream lines(record);
  const std::string recorded((std::istreambuf_iterator<char>(lines)), {});
  EXPECT_THAT(recorded, HasSubstr(R"("arch":"compute_80")"))
      << "what warm --manifest builds for it";
}

TEST_F(LibraryGetTest, ACubinForAnotherArchitectureIsGivenWhereItRuns) {
  const SimulatedDriver driver("8.6");
  auto service = open(driver);
  const auto get = [&](const char* target) {
    return service->get(
        Request::from_source(
            {.source = "extern \"C\" __global__ void k() {}", .target = target}),
        service->devices().at(0));
  };
  const auto lower = test::value_of(get("8.0"));
  EXPECT_EQ(lower.key(), get("sm_80")->key());
  EXPECT_THAT(get("9.0").error().message, HasSubstr("target 9.0"));
  EXPECT_THAT(get("8.x").error().message, HasSubstr("'8.x' is not an architecture"));
}

TEST_F(LibraryGetTest, PtxIsRefusedBeforeItIsBuiltIfTheDriverIsTooOld) {
  const SimulatedDriver driver("9.0");
  driver.set_driver_version(12000);
  auto service = open(driver);
  EXPECT_THAT(service->get(
                  Request::from_source({.source = "extern \"C\" __global__ void k() {}",
                                        .target = "compute_90"}),
                  service->devices().at(0)),
              test::IsError(ErrorCode::kUnavailable, HasSubstr("PTX built by CUDA")));
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kFailed));
}

TEST_F(LibraryGetTest, SeveralSourcesAreLinkedAndLoadedAsOneModule) {
  const SimulatedDriver driver("8.6,9.0");
  auto service = open(driver);
  const std::vector<SourceOptions> sources{
      {.source = "extern __device__ float twice(float);\n"
                 "__constant__ float factors[3];\n"
                 "template <typename T> __global__ void scale(T* x) {\n"
                 "  *x = twice(*x) * factors[1];\n}\n",
       .file_name = "main.cu",
       .name_expressions = {"scale<float>", "&factors"}},
      {.source = "__device__ float twice(float x) { return 2 * x; }\n",
       .file_name = "twice.cu"}};
  const Request request = Request::from_sources(sources);
  EXPECT_EQ(request.name(), "main.cu");
  EXPECT_EQ(request.sources().size(), 2U);
  const auto kernel = service->get(request, service->devices().at(1));
  if (!kernel && kernel.error().code == ErrorCode::kUnavailable)
    GTEST_SKIP() << kernel.error().message;
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->entry_point(), "_Z5scaleIfEvPT_") << "the only one that is named";
  EXPECT_TRUE(kernel->launch(Geometry{}, nullptr, nullptr));
  EXPECT_EQ(kernel->global("factors")->bytes, 12U);
  EXPECT_THAT(take_kinds(), ElementsAre(Kind::kCompiled, Kind::kLoaded));
  const auto other = test::value_of(service->get(request, service->devices().at(0)));
  EXPECT_NE(other.key(), kernel->key()) << "a cubin for each architecture";

  auto anew = open(driver);
  EXPECT_EQ(anew->get(Request::from_sources(sources), anew->devices().at(1))->key(),
            kernel->key());
  EXPECT_EQ(take_kinds().at(2), Kind::kHit);
  EXPECT_THAT(anew->get(Request::from_sources({sources[0]}, {.options = {"-verbose"}}),
                        anew->devices().at(1)),
              test::IsError(ErrorCode::kCompileFailed, HasSubstr("'_Z5twicef'")));
}

TEST_F(LibraryGetTest, ASourceWithOneKernelNeedsNoChoice) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const auto kernel = service->get(
      Request::from_source({.source = "__constant__ float factor;\n"
                                      "extern \"C\" __global__ void k(float* x) {\n"
                                      "  *x *= factor;\n}\n",
                            .name_expressions = {"&factor"}}),
      service->devices().at(0));
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_TRUE(kernel->launch(Geometry{}, nullptr, nullptr));
}

TEST_F(LibraryGetTest, ATemplatesHeadersAreThoseOfItsFirstResolveOnEveryDevice) {
  const SimulatedDriver driver("9.0,9.0");
  const auto folder = temp_.path() / "templates" / "filled";
  write_template(folder,
                 "#include \"value.h\"\n"
                 "extern \"C\" __global__ void filled_fwd(int* x) { *x = VALUE; }\n");
  std::ofstream(folder / "value.h") << "#define VALUE 1\n";
  Options options = this->options(driver);
  options.template_dirs = {temp_.path() / "templates"};
  auto service = open(options);
  ASSERT_TRUE(service);
  const Request request("filled_fwd", {});
  const auto first = test::value_of(service->get(request, service->devices().at(0)));
  std::ofstream(folder / "value.h") << "#define VALUE 22\n";
  const auto second = test::value_of(service->get(request, service->devices().at(1)));
  EXPECT_EQ(first.key(), second.key());
  EXPECT_NE(service->get({"filled_fwd", {}}, service->devices().at(1))->key(),
            first.key());
}

TEST_F(LibraryGetTest, ServicesWithOtherTemplatesAnswerOneRequestEachWithItsOwn) {
  const SimulatedDriver driver;
  const Request request("filled_fwd", {});
  std::vector<std::string> keys;
  for (const char* value : {"1", "22"}) {
    const auto folder = temp_.path() / value / "filled";
    write_template(folder,
                   fmt::format("extern \"C\" __global__ void filled_fwd(int* x) "
                               "{{ *x = {}; }}\n",
                               value));
    Options options = this->options(driver);
    options.template_dirs = {temp_.path() / value};
    auto service = open(options);
    ASSERT_TRUE(service);
    for (int i = 0; i < 2; ++i) {
      const auto kernel =
          test::value_of(service->get(request, service->devices().at(0)));
      keys.push_back(kernel.key());
    }
  }
  EXPECT_THAT(keys, ElementsAre(keys[0], keys[0], keys[2], keys[2]));
  EXPECT_NE(keys[0], keys[2]);
}

TEST_F(LibraryGetTest, StopEndsAWaitForABuild) {
  const SimulatedDriver driver;
  auto service = open(driver);
  const Device device = service->devices().at(0);
  const Request endless = Request::from_source({.source = test::endless_kernel()});
  std::stop_source stop;
  std::vector<std::thread> threads;
  std::atomic<int> stopped = 0;
  for (int i = 0; i < 2; ++i) {  // one builds, the other waits for it
    threads.emplace_back([&] {
      const auto kernel = service->get(endless, device, stop.get_token());
      EXPECT_THAT(kernel, test::IsError(ErrorCode::kCancelled));
      ++stopped;
    });
  }
  EXPECT_TRUE(test::eventually(kPatience,
                               [] { return !test::children_of(::getpid()).empty(); }));
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(stopped, 0);
  stop.request_stop();
  EXPECT_TRUE(test::eventually(kPatience, [&] { return stopped == 2; }));
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(service->get(small_source(), device));
}

TEST_F(LibraryGetTest, OnAMachineWithoutDevicesThereAreNoneAndOpenSucceeds) {
  const SimulatedDriver driver("");
  auto service = open(driver);
  EXPECT_THAT(service->devices(), IsEmpty());
  EXPECT_EQ(service->get(kSoftmax, Device{}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(LibraryGetTest, ADriverThatFailsIsSaidAtOpen) {
  const SimulatedDriver driver;
  ASSERT_EQ(driver.inject("cuInit", 0, 999), 0);
  const auto service = Service::open(options(driver));
  ASSERT_FALSE(service);
  EXPECT_THAT(service.error().message, HasSubstr("cuInit"));
}

TEST_F(LibraryGetTest, TheProfileHasWhatCudnnAsksFor) {
  const SimulatedDriver driver("8.6");
  auto service = open(driver);
  const auto profile = test::value_of(service->profile(service->devices().at(0)));
  EXPECT_THAT(profile, HasSubstr("\"deviceVer\""));
}

}  // namespace
}  // namespace kiln
