#include "device/module.h"

#include <string>
#include <thread>

#include "device/devices.h"
#include "tests/support/child_process.h"
#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"
#include "tests/unit/device/loading.h"
#include "util/log.h"

namespace kiln::device {
namespace {

using test::SimulatedDriver;
using testing::Optional;

/// Nothing of a load that failed is left.
void expect_nothing_left(const SimulatedDriver& simulated) {
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(test::current_context(simulated), nullptr);
}

TEST(Loading, AFunctionTellsItsAttributesAndParameters) {
  const SimulatedDriver simulated("9.0");
  const auto module =
      test::load_cubin(test::context_of(simulated), {.parameters = {8, 1, 24, 4}});
  ASSERT_TRUE(module) << module.error().message;
  ASSERT_EQ((*module)->functions().size(), 2U);
  const Function* const function = (*module)->find("k");
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(function->name(), "k");
  EXPECT_EQ(function->attributes().registers, 24U);
  EXPECT_EQ(function->attributes().static_shared_bytes, 512U);
  EXPECT_EQ(function->attributes().max_dynamic_shared_bytes, 227U * 1024 - 512);
  EXPECT_EQ(function->attributes().max_threads_per_block, 256U);
  EXPECT_THAT(function->parameters(), Optional(ElementsAre(8, 1, 24, 4)));
  EXPECT_EQ((*module)->find("helper"), nullptr);
  EXPECT_EQ((*module)->label(),
            "softmax (key 0123456789ab) on device 0 (Simulated 9.0)");
}

TEST(Loading, EachOfTwoDevicesRefusesTheOthersCubinAndTheDriverNeverSeesIt) {
  const SimulatedDriver simulated("7.5,8.6");
  const Bytes turing = test::cubin_for("sm_75");
  const Bytes ampere = test::cubin_for("sm_86");
  EXPECT_THAT(
      LoadedModule::load(test::context_of(simulated, 0),
                         test::image_of(ampere, "sm_86")),
      test::IsError(ErrorCode::kInvalidArgument,
                    AllOf(HasSubstr("softmax"), HasSubstr("(key 0123456789ab)"),
                          HasSubstr("device 0 (Simulated 7.5)"),
                          HasSubstr("sm_86 code"), HasSubstr("; build it for 7.5"))));
  EXPECT_FALSE(LoadedModule::load(test::context_of(simulated, 1),
                                  test::image_of(turing, "sm_75")));
  EXPECT_EQ(simulated.loads(), 0U);
  EXPECT_EQ(simulated.calls("cuModuleLoadDataEx"), 0U);
  EXPECT_TRUE(LoadedModule::load(test::context_of(simulated, 0),
                                 test::image_of(turing, "sm_75")));
  EXPECT_TRUE(LoadedModule::load(test::context_of(simulated, 1),
                                 test::image_of(ampere, "sm_86")));
  EXPECT_EQ(simulated.loads_on(0), 1U);
  EXPECT_EQ(simulated.loads_on(1), 1U);
}

TEST(Loading, ArchitectureSpecificCodeIsRefusedByALaterDevice) {
  const SimulatedDriver simulated("10.0");
  for (const char* target : {"sm_90a", "compute_90a"}) {
    const Bytes bytes =
        *target == 's' ? test::cubin_for(target) : test::ptx_for(target);
    const auto refused =
        LoadedModule::load(test::context_of(simulated), test::image_of(bytes, target));
    EXPECT_THAT(refused, test::IsError(ErrorCode::kInvalidArgument,
                                       HasSubstr(std::string(target) + " code")))
        << target;
  }
  EXPECT_EQ(simulated.calls("cuModuleLoadDataEx"), 0U);
}

TEST(Loading, AnImageOfANewerToolkitThanTheDriverIsRefusedUnseen) {
  const SimulatedDriver simulated("9.0");
  ASSERT_EQ(simulated.set_driver_version(12040), 0);
  const auto context = test::context_of(simulated);
  const Bytes cubin = test::cubin_for("sm_90");
  const Bytes ptx = test::ptx_for("sm_90");
  for (const Image& image : {test::image_of(cubin, "sm_90", {13, 0}),
                             test::image_of(ptx, "compute_90", {12, 8})}) {
    EXPECT_THAT(
        LoadedModule::load(context, image),
        test::IsError(ErrorCode::kUnavailable,
                      AllOf(HasSubstr("softmax (key 0123456789ab) on device 0"),
                            HasSubstr("this driver is for 12.4"),
                            HasSubstr("; install a newer driver, or build it with"))));
  }
  EXPECT_EQ(simulated.calls("cuModuleLoadDataEx"), 0U);
  const Bytes later = test::cubin_for("sm_90", "12.9");
  EXPECT_TRUE(LoadedModule::load(context, test::image_of(later, "sm_90", {12, 9})))
      << "a cubin of a later minor version is taken";
}

// The driver takes no size: it would read wherever a damaged file sends it.
TEST(Loading, AnImageThatIsNotWhatItIsSaidToBeNeverReachesTheDriver) {
  const SimulatedDriver simulated("9.0");
  const auto context = test::context_of(simulated);
  const Bytes whole = test::cubin_for("sm_90");
  const Bytes cut(whole.begin(), whole.end() - 1);
  const Bytes other = test::cubin_for("sm_80");
  Bytes ptx = test::ptx_for("sm_90");
  ptx.insert(ptx.end(), {std::byte{'x'}, std::byte{0}});
  for (const Image& image :
       {test::image_of(cut, "sm_90"), test::image_of(other, "sm_90"),
        test::image_of(whole, "compute_90"), test::image_of(ptx, "compute_90"),
        test::image_of({}, "sm_90")}) {
    EXPECT_THAT(
        LoadedModule::load(context, image),
        test::IsError(ErrorCode::kCorrupt, HasSubstr("softmax (key 0123456789ab)")));
  }
  EXPECT_EQ(simulated.calls("cuModuleLoadDataEx"), 0U);
}

TEST(Loading, AMissingEntryPointIsNamedBeforeTheDriverIsAsked) {
  const SimulatedDriver simulated("9.0");
  const Bytes bytes = test::cubin_for("sm_90");
  Image image = test::image_of(bytes, "sm_90");
  image.entry_points = {"k", "absent"};
  EXPECT_THAT(
      LoadedModule::load(test::context_of(simulated), image),
      test::IsError(ErrorCode::kCorrupt, HasSubstr("no entry point absent; it has k")));
  EXPECT_EQ(simulated.calls("cuModuleLoadDataEx"), 0U);
}

TEST(Loading, AnEntryPointThatTheDriverDoesNotFindIsCorrupt) {
  const SimulatedDriver simulated("9.0");
  ASSERT_EQ(simulated.inject("cuModuleGetFunction", 2, CUDA_ERROR_NOT_FOUND), 0);
  EXPECT_THAT(
      test::load_cubin(test::context_of(simulated)),
      test::IsError(ErrorCode::kCorrupt,
                    HasSubstr("the driver finds no kernel plain in softmax (key")));
  EXPECT_EQ(simulated.loads(), 1U);
  expect_nothing_left(simulated);
}

TEST(Loading, WithoutNamesEveryKernelOfTheImageIsThere) {
  const SimulatedDriver simulated("9.0");
  const Bytes bytes = test::cubin_for("sm_90");
  Image image = test::image_of(bytes, "sm_90");
  image.entry_points.clear();
  const auto module = LoadedModule::load(test::context_of(simulated), image).value();
  ASSERT_EQ(module->functions().size(), 2U);
  EXPECT_EQ(module->functions()[0].name(), "k");
  EXPECT_EQ(module->functions()[1].name(), "plain");
}

test::LoadResult load_with_local_kernel(const SimulatedDriver& simulated) {
  const Bytes bytes = test::MadeCubin{.local_kernel = "own"}.build();
  Image image = test::image_of(bytes, "sm_90");
  image.entry_points.clear();
  return LoadedModule::load(test::context_of(simulated), image);
}

// `static __global__`, which the driver need not find by name.
TEST(Loading, AKernelOfLocalBindingIsFoundInTheDriversEnumeration) {
  const SimulatedDriver simulated("9.0");
  const auto module = test::value_of(load_with_local_kernel(simulated));
  ASSERT_EQ(module->functions().size(), 3U);
  const Function* const own = module->find("own");
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->attributes().registers, 16U);
  EXPECT_THAT(module->unreachable(), IsEmpty());
}

TEST(Loading, ADriverThatCannotEnumerateLeavesAKernelOfLocalBindingOut) {
  const SimulatedDriver simulated("9.0");
  ASSERT_EQ(simulated.remove("cuModuleEnumerateFunctions"), 0);
  const auto module = test::value_of(load_with_local_kernel(simulated));
  EXPECT_EQ(module->functions().size(), 2U);
  EXPECT_THAT(module->unreachable(), ElementsAre("own"));
}

// As a device gets it that is newer than its compiler.
TEST(LoadingPtx, AKernelOfLocalBindingIsFoundAsInACubin) {
  std::string text(as_text(test::ptx_for("sm_90")));
  text.insert(text.rfind('}') + 1, "\n.entry own()\n{\n\tret;\n}\n");
  const Bytes bytes = test::bytes_of(text);
  Image image = test::image_of(bytes, "compute_90");
  for (const bool is_named : {true, false}) {
    const SimulatedDriver simulated("9.0");
    if (is_named)
      image.entry_points = {"own"};
    else
      image.entry_points.clear();
    const auto module =
        test::value_of(LoadedModule::load(test::context_of(simulated), image));
    EXPECT_EQ(module->functions().size(), is_named ? 1U : 3U);
    EXPECT_NE(module->find("own"), nullptr);
  }
  const SimulatedDriver old("9.0");
  ASSERT_EQ(old.remove("cuModuleEnumerateFunctions"), 0);
  const auto module = test::value_of(LoadedModule::load(test::context_of(old), image));
  EXPECT_EQ(module->functions().size(), 2U);
  EXPECT_THAT(module->unreachable(), ElementsAre("own"));
}

TEST(Loading, OutOfMemoryNamesDeviceKernelKeyCallAndRemedy) {
  const SimulatedDriver simulated("9.0");
  const auto context = test::context_of(simulated);
  ASSERT_EQ(simulated.inject("cuModuleLoadDataEx", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  EXPECT_THAT(
      test::load_cubin(context),
      test::IsError(
          ErrorCode::kDevice,
          "cuModuleLoadDataEx, softmax (key 0123456789ab) on device 0 (Simulated "
          "9.0): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; free memory of the "
          "device, or load fewer kernels"));
  expect_nothing_left(simulated);
  EXPECT_TRUE(test::load_cubin(context)) << "it is not sticky";
}

TEST(Loading, AFailureOfAnyLaterCallUnloadsTheModule) {
  const SimulatedDriver simulated("9.0");
  const auto context = test::context_of(simulated);
  for (const char* call :
       {"cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", "cuFuncGetName",
        "cuModuleGetFunction", "cuFuncGetAttribute"}) {
    ASSERT_EQ(simulated.inject(call, 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
    const auto refused = test::load_cubin(context);
    EXPECT_THAT(refused,
                test::IsError(ErrorCode::kDevice,
                              AllOf(HasSubstr(call), HasSubstr("on device 0"))))
        << call;
    expect_nothing_left(simulated);
  }
  EXPECT_EQ(simulated.loads(), 5U);
}

TEST(Loading, IntoALostContextSaysThatTheProcessHasToEnd) {
  const SimulatedDriver simulated("9.0");
  const auto context = test::context_of(simulated);
  ASSERT_EQ(simulated.lose_context(context->handle(), CUDA_ERROR_ILLEGAL_ADDRESS), 0);
  const auto refused = test::load_cubin(context);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
                    HasSubstr("only a new process can use the device again")));
}

// Whoever gets a kernel lazily does not know who captures what meanwhile.
TEST(Loading, DuringACaptureWorksAndLeavesTheCaptureWhole) {
  const SimulatedDriver simulated("9.0");
  const auto context = test::context_of(simulated);
  test::make_current(simulated, context->handle());
  const CUstream stream = test::stream_of(simulated, context->handle());
  ASSERT_EQ(simulated.find<decltype(::cuStreamBeginCapture)>("cuStreamBeginCapture_v2")(
                stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_SUCCESS);
  std::thread([&] { EXPECT_TRUE(test::load_cubin(context)); }).join();
  auto own = test::value_of(test::load_cubin(context));
  own.reset();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  ASSERT_EQ(simulated.find<decltype(::cuThreadExchangeStreamCaptureMode)>(
                "cuThreadExchangeStreamCaptureMode")(&mode),
            CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread has its own mode back";
  CUgraph graph = nullptr;
  EXPECT_EQ(simulated.find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(
                stream, &graph),
            CUDA_SUCCESS);
}

TEST(LoadingPtx, TellsParametersThroughTheDriver) {
  const SimulatedDriver simulated("12.0");
  const auto module = test::value_of(test::load_ptx(test::context_of(simulated)));
  EXPECT_THAT(module->find("k")->parameters(), Optional(ElementsAre(8)));
  EXPECT_THAT(module->find("plain")->parameters(), Optional(IsEmpty()));
}

TEST(LoadingPtx, NeedsNoClosingNul) {
  const SimulatedDriver simulated("9.0");
  Bytes bytes = test::ptx_for("sm_90");
  bytes.pop_back();
  EXPECT_TRUE(LoadedModule::load(test::context_of(simulated),
                                 test::image_of(bytes, "compute_90")));
}

TEST(LoadingPtx, ThatTheDriverRefusesComesWithItsCompilersWords) {
  const SimulatedDriver simulated("9.0");
  EXPECT_THAT(
      test::load_ptx(test::context_of(simulated), "9.3"),
      test::IsError(ErrorCode::kDevice,
                    AllOf(HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"),
                          HasSubstr("; install a newer driver, or build with an older"),
                          HasSubstr("; the driver's compiler says: "))));
}

TEST(Loading, WithAnOlderDriverDoesWithoutEnumerationAndParameters) {
  for (const char* absent : {"cuModuleGetFunctionCount", "cuModuleEnumerateFunctions",
                             "cuFuncGetName", "cuFuncGetParamInfo"}) {
    const SimulatedDriver simulated("9.0");
    ASSERT_EQ(simulated.remove(absent), 0);
    const auto context = test::context_of(simulated);
    const auto cubin = test::load_cubin(context);
    ASSERT_TRUE(cubin) << absent << ": " << cubin.error().message;
    EXPECT_EQ((*cubin)->functions().size(), 2U);
    EXPECT_THAT((*cubin)->find("k")->parameters(), Optional(ElementsAre(8)))
        << "the image tells them itself";
    const auto ptx = test::load_ptx(context);
    ASSERT_TRUE(ptx) << absent << ": " << ptx.error().message;
    EXPECT_EQ((*ptx)->find("k")->parameters().has_value(),
              std::string_view(absent) != "cuFuncGetParamInfo");
  }
}

TEST(Loading, IsTheSameEagerAndLazy) {
  for (const char* mode : {"eager", "lazy"}) {
    const SimulatedDriver simulated("9.0,8.6");
    ASSERT_EQ(simulated.set_loading(mode), 0);
    const auto module = test::load_cubin(test::context_of(simulated));
    ASSERT_TRUE(module) << mode << ": " << module.error().message;
    EXPECT_EQ(simulated.loads_on(0), 1U);
    EXPECT_EQ(simulated.loads_on(1), 0U) << "one device's image in one context";
  }
}

TEST(Loading, LeavesTheThreadsContextAsItWas) {
  const SimulatedDriver simulated("9.0,8.6");
  const auto context = test::context_of(simulated, 0);
  const auto other = test::context_of(simulated, 1);
  for (const CUcontext before :
       {CUcontext{nullptr}, context->handle(), other->handle()}) {
    test::make_current(simulated, before);
    auto module = test::load_cubin(context);
    ASSERT_TRUE(module);
    EXPECT_EQ(test::current_context(simulated), before);
    module->reset();
    EXPECT_EQ(test::current_context(simulated), before);
    EXPECT_EQ(simulated.alive(KILN_SIMULATED_MODULES), 0U);
  }
}

TEST(Loading, OnTwoDevicesByTwoThreadsAtOnce) {
  const SimulatedDriver simulated("7.5,8.6");
  const auto work = [&](std::size_t ordinal, const std::string& arch) {
    const auto context = test::context_of(simulated, ordinal);
    const Bytes bytes = test::cubin_for(arch);
    for (int i = 0; i < 50; ++i)
      EXPECT_TRUE(LoadedModule::load(context, test::image_of(bytes, arch)));
  };
  std::thread first(work, 0, "sm_75");
  std::thread second(work, 1, "sm_86");
  first.join();
  second.join();
  EXPECT_EQ(simulated.loads_on(0), 50U);
  EXPECT_EQ(simulated.loads_on(1), 50U);
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST(Devices, OfAParentWithoutADriverAreNotSaidToHaveStartedCuda) {
  const auto devices = Devices::open(std::nullopt).value();
  test::ChildProcess child([&] {
    const auto refused = devices->check_process();
    return !refused && refused.error().message.find("CUDA") == std::string::npos ? 0
                                                                                 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(LoadedModule, KeepsItsContextUntilItGoes) {
  const SimulatedDriver simulated("9.0");
  auto module = test::load_cubin(test::context_of(simulated)).value();
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 1U);
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_MODULES), 1U);
  std::thread([last = std::move(module)]() mutable { last.reset(); }).join();
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_MODULES), 0U);
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

TEST(LoadedModule, CallsNoDriverInAForkedChild) {
  const SimulatedDriver simulated("9.0");
  auto module = test::load_cubin(test::context_of(simulated)).value();
  const auto calls = [&] {
    return simulated.calls("cuCtxGetCurrent") + simulated.calls("cuCtxPushCurrent") +
           simulated.calls("cuModuleUnload") +
           simulated.calls("cuDevicePrimaryCtxRelease");
  };
  test::ChildProcess child([&] {
    const unsigned long before = calls();
    module.reset();
    return static_cast<int>(calls() - before);
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(LoadedModule, OfADriverThatHasEndedGoesInSilence) {
  const SimulatedDriver simulated("9.0");
  auto module = test::load_cubin(test::context_of(simulated)).value();
  simulated.deinitialize();
  ASSERT_TRUE(set_log_level("debug"));
  testing::internal::CaptureStderr();
  module.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  ASSERT_TRUE(set_log_level("warning"));
}

TEST(LoadedModule, OfALostContextGoesWithADebugMessage) {
  const SimulatedDriver simulated("9.0");
  auto module = test::load_cubin(test::context_of(simulated)).value();
  ASSERT_EQ(
      simulated.lose_context(module->context().handle(), CUDA_ERROR_LAUNCH_FAILED), 0);
  ASSERT_TRUE(set_log_level("debug"));
  testing::internal::CaptureStderr();
  module.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("cuModuleUnload"), HasSubstr("softmax")));
  ASSERT_TRUE(set_log_level("warning"));
  EXPECT_EQ(simulated.alive(KILN_SIMULATED_CONTEXTS), 0U);
}

}  // namespace
}  // namespace kiln::device
