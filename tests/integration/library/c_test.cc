// The library through kiln/c.h, on simulated devices and with the real NVRTC.

#include "kiln/c.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "library_service.h"

// C++ warns of what a designated initializer leaves at zero, C does not.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace kiln {
namespace {

using test::LibraryTest;
using test::SimulatedDriver;
using testing::StrEq;

template <auto* free>
struct FreedBy {
  template <typename Handle>
  void operator()(Handle* handle) const {
    free(handle);
  }
};
using OwnedService = std::unique_ptr<kiln_service, FreedBy<kiln_service_close>>;
using OwnedKernel = std::unique_ptr<kiln_kernel, FreedBy<kiln_kernel_free>>;
using OwnedCancel = std::unique_ptr<kiln_cancel, FreedBy<kiln_cancel_free>>;

/// What a call came to, copied.
struct Outcome {
  int code = 0;
  std::string message{};
  std::string log{};
};
Outcome outcome(kiln_result result) {
  Outcome copy{kiln_error_code(result), kiln_error_message(result),
               kiln_error_log(result)};
  kiln_error_free(result);
  return copy;
}
#define EXPECT_DONE(call)                                     \
  do {                                                        \
    const Outcome done = outcome(call);                       \
    EXPECT_EQ(done.code, 0) << #call << ": " << done.message; \
  } while (false)

void expect_refused(kiln_result result, std::string_view why) {
  const Outcome refused = outcome(result);
  EXPECT_EQ(refused.code, KILN_INVALID_ARGUMENT) << refused.message;
  EXPECT_THAT(refused.message, HasSubstr(why));
}

constexpr const char* kFill =
    "extern \"C\" __global__ void fill(float* y, float x) { *y = x; }";

class CTest : public LibraryTest {
 protected:
  CTest() : driver_("7.5,9.0"), path_(driver_.path()), cache_(temp_.path() / "cache") {}

  /// Opens one with these settings, which come after those of every test.
  kiln_result open(std::initializer_list<const char*> more, kiln_service** service,
                   kiln_options options = KILN_OPTIONS_INIT) const {
    const std::string cache = "cache_dir=" + cache_.native();
    const std::string driver = "driver=" + path_.native();
    std::vector<const char*> settings{cache.c_str(), driver.c_str(), "jobs=2"};
    settings.insert(settings.end(), more);
    options.settings = settings.data();
    options.setting_count = settings.size();
    return kiln_service_open(&options, service);
  }
  [[nodiscard]] OwnedService open(std::initializer_list<const char*> more = {},
                                  kiln_options options = KILN_OPTIONS_INIT) const {
    kiln_service* service = nullptr;
    EXPECT_DONE(open(more, &service, options));
    return OwnedService(service);
  }

  [[nodiscard]] static OwnedKernel fill(kiln_service* service) {
    kiln_source source = KILN_SOURCE_INIT;
    source.source = kFill;
    kiln_kernel* kernel = nullptr;
    EXPECT_DONE(kiln_get_source(service, 0, &source, nullptr, &kernel));
    return OwnedKernel(kernel);
  }

  /// A function of the driver by its symbol: to the library, its types do not matter.
  template <typename... Arguments>
  int drive(const char* symbol, Arguments... arguments) const {
    return driver_.find<int(Arguments...)>(symbol)(arguments...);
  }

 private:
  const SimulatedDriver driver_;
  const std::filesystem::path path_;
  const std::filesystem::path cache_;
};

TEST_F(CTest, ATemplateIsFetchedSizedAndLaunchedOnEachDevice) {
  const OwnedService service = open();
  int count = 0;
  EXPECT_DONE(kiln_device_count(service.get(), &count));
  ASSERT_EQ(count, 2);
  for (int device = 0; device < count; ++device) {
    kiln_device info = KILN_DEVICE_INIT;
    EXPECT_DONE(kiln_device_info(service.get(), device, &info));
    EXPECT_EQ(info.ordinal, device);
    EXPECT_EQ(info.capability_major, device == 0 ? 7 : 9);
    EXPECT_THAT(info.uuid, StartsWith("GPU-"));

    kiln_kernel* fetched = nullptr;
    EXPECT_DONE(kiln_get_template(service.get(), device, "scaled_softmax_fwd",
                                  R"({"dtype": "bf16", "max_cols": 128})", nullptr,
                                  &fetched));
    const OwnedKernel kernel(fetched);
    EXPECT_EQ(std::string_view(kiln_kernel_key(kernel.get())).size(), 64U);
    kiln_kernel_attributes attributes = KILN_KERNEL_ATTRIBUTES_INIT;
    EXPECT_DONE(kiln_kernel_info(kernel.get(), &attributes));
    EXPECT_GT(attributes.max_threads_per_block, 0U);

    const char* const names[] = {"rows", "cols"};
    const std::int64_t values[] = {4, 128};
    kiln_geometry geometry = KILN_GEOMETRY_INIT;
    EXPECT_DONE(kiln_kernel_geometry(kernel.get(), names, values, 2, &geometry));
    EXPECT_GT(geometry.grid[0] * geometry.block[0], 0U);
    std::vector<std::uint16_t> y(4 * 128), x(4 * 128);
    void* out = y.data();
    const void* in = x.data();
    float scale = 1;
    std::int64_t rows = 4, cols = 128;
    void* const arguments[] = {&out, &in, &scale, &rows, &cols};
    std::size_t sizes[] = {8, 8, 4, 8, 8};
    EXPECT_DONE(
        kiln_kernel_launch(kernel.get(), &geometry, nullptr, arguments, sizes, 5));
    sizes[2] = 8;  // a double
    expect_refused(
        kiln_kernel_launch(kernel.get(), &geometry, nullptr, arguments, sizes, 5),
        "a value of 8 was given");
    sizes[2] = 4;
    void* const with_null[] = {&out, &in, nullptr, &rows, &cols};
    expect_refused(
        kiln_kernel_launch(kernel.get(), &geometry, nullptr, with_null, sizes, 5),
        "argument 2 (counted from 0) is null");
  }
  kiln_statistics statistics = KILN_STATISTICS_INIT;
  EXPECT_DONE(kiln_statistics_get(service.get(), &statistics));
  EXPECT_EQ(statistics.compiled, 2U);
  EXPECT_EQ(statistics.loaded, 2U);
}

TEST_F(CTest, OfASourceEachKernelHasAnEntryAndTheImageIsTheCubin) {
  const OwnedService service = open();
  const char* const header_names[] = {"own.h"};
  const char* const header_texts[] = {"#define TYPE float\n"};
  const char* const defines[] = {"FACTOR=2"};
  const char* const names[] = {"scale<TYPE>", "scale<double>", "&table"};
  kiln_source source = KILN_SOURCE_INIT;
  source.source =
      "#include \"own.h\"\n"
      "__constant__ double table[4];\n"
      "template <typename T> __global__ void scale(T* x) { *x *= FACTOR; }";
  source.header_names = header_names;
  source.header_texts = header_texts;
  source.header_count = 1;
  source.defines = defines;
  source.define_count = 1;
  source.name_expressions = names;
  source.name_expression_count = 3;
  kiln_kernel* fetched = nullptr;
  EXPECT_DONE(kiln_get_source(service.get(), 1, &source, nullptr, &fetched));
  const OwnedKernel kernel(fetched);
  kiln_kernel* entry = nullptr;
  EXPECT_DONE(kiln_kernel_entry(kernel.get(), "scale<double>", &entry));
  const OwnedKernel chosen(entry);
  kiln_kernel_attributes attributes = KILN_KERNEL_ATTRIBUTES_INIT;
  EXPECT_DONE(kiln_kernel_info(chosen.get(), &attributes));
  expect_refused(kiln_kernel_info(kernel.get(), &attributes),
                 "choose one with entry()");
  EXPECT_EQ(outcome(kiln_kernel_entry(kernel.get(), "scale<int>", &entry)).code,
            KILN_NOT_FOUND);
  EXPECT_EQ(entry, nullptr);

  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  EXPECT_DONE(kiln_kernel_global(kernel.get(), "table", &address, &bytes));
  EXPECT_NE(address, 0U);
  EXPECT_EQ(bytes, 32U);
  EXPECT_EQ(outcome(kiln_kernel_global(kernel.get(), "other", &address, &bytes)).code,
            KILN_NOT_FOUND);
  expect_refused(kiln_kernel_global(kernel.get(), "table", nullptr, &bytes),
                 "address is NULL");

  const void* image = nullptr;
  std::size_t size = 0;
  EXPECT_DONE(kiln_kernel_image(chosen.get(), &image, &size));
  ASSERT_GT(size, 64U);
  EXPECT_EQ(std::string_view(static_cast<const char*>(image), 4),
            "\x7f"
            "ELF");
}

TEST_F(CTest, ASourceSaysItsTargetAndWhatIsLinkedWithIt) {
  const OwnedService service = open();
  kiln_source twice = KILN_SOURCE_INIT;
  twice.source = "__device__ float twice(float x) { return 2 * x; }";
  const kiln_source* const others[] = {&twice};
  const char* const options[] = {"-maxrregcount=32"};
  kiln_source source = KILN_SOURCE_INIT;
  source.source =
      "extern __device__ float twice(float);\n"
      "extern \"C\" __global__ void k(float* x) { *x = twice(*x); }";
  source.linked_sources = others;
  source.linked_source_count = 1;
  source.link_options = options;
  source.link_option_count = 1;
  kiln_kernel* fetched = nullptr;
  const Outcome linked =
      outcome(kiln_get_source(service.get(), 1, &source, nullptr, &fetched));
  const OwnedKernel kernel(fetched);
  EXPECT_TRUE(linked.code == 0 || linked.code == KILN_UNAVAILABLE) << linked.message;

  source.linked_sources = nullptr;
  expect_refused(kiln_get_source(service.get(), 1, &source, nullptr, &fetched),
                 "source.linked_sources is NULL");
  const char* const nothing[] = {nullptr};
  source.linked_source_count = 0;
  source.link_files = nothing;
  source.link_file_count = 1;
  expect_refused(kiln_get_source(service.get(), 1, &source, nullptr, &fetched),
                 "source.link_files[0] is NULL");

  kiln_source ptx = KILN_SOURCE_INIT;
  ptx.source = "extern \"C\" __global__ void k() {}";
  ptx.target = "compute_75";
  EXPECT_DONE(kiln_get_source(service.get(), 1, &ptx, nullptr, &fetched));
  const OwnedKernel loaded(fetched);
  const void* image = nullptr;
  std::size_t size = 0;
  EXPECT_DONE(kiln_kernel_image(loaded.get(), &image, &size));
  EXPECT_THAT(std::string(static_cast<const char*>(image), size),
              testing::HasSubstr(".target sm_75"));
}

TEST_F(CTest, AKernelTellsTheSizesOfItsParameters) {
  const OwnedService service = open();
  const OwnedKernel kernel = fill(service.get());
  std::size_t n = 0;
  EXPECT_DONE(kiln_kernel_parameters(kernel.get(), nullptr, &n));
  EXPECT_EQ(n, 2U);
  std::size_t sizes[] = {0, 0, 77};
  n = 1;
  EXPECT_DONE(kiln_kernel_parameters(kernel.get(), sizes, &n));
  EXPECT_EQ(n, 2U);
  EXPECT_THAT(sizes, ElementsAre(8U, 0U, 77U)) << "no more than there is room for";
  n = 3;
  EXPECT_DONE(kiln_kernel_parameters(kernel.get(), sizes, &n));
  EXPECT_THAT(sizes, ElementsAre(8U, 4U, 77U));
  expect_refused(kiln_kernel_parameters(kernel.get(), nullptr, &n), "sizes is NULL");
  expect_refused(kiln_kernel_parameters(kernel.get(), sizes, nullptr), "n is NULL");
}

TEST_F(CTest, AWholeNumberForAFloatIsRefusedWhereTheKindsAreGiven) {
  const OwnedService service = open();
  const OwnedKernel kernel = fill(service.get());
  uint8_t kinds[] = {KILN_ARGUMENT_ANY, KILN_ARGUMENT_ANY};
  std::size_t n = 2;
  EXPECT_DONE(kiln_kernel_parameter_kinds(kernel.get(), kinds, &n));
  EXPECT_THAT(kinds, ElementsAre(KILN_ARGUMENT_INTEGER, KILN_ARGUMENT_FLOAT));
  const kiln_geometry geometry = KILN_GEOMETRY_INIT;
  void* address = nullptr;
  int whole = 1;
  void* const arguments[] = {&address, &whole};
  const std::size_t sizes[] = {sizeof address, sizeof whole};
  const auto launch = [&](uint8_t kind) {
    const uint8_t given[] = {KILN_ARGUMENT_ANY, kind};
    return kiln_kernel_launch_typed(kernel.get(), &geometry, nullptr, arguments, sizes,
                                    given, 2);
  };
  expect_refused(launch(KILN_ARGUMENT_INTEGER),
                 "argument 1 (counted from 0) is a whole number, and its parameter is "
                 "float or double: pass a float or a double");
  expect_refused(launch(3), "kinds has 3");
  EXPECT_DONE(launch(KILN_ARGUMENT_FLOAT));
  EXPECT_DONE(launch(KILN_ARGUMENT_ANY));
  EXPECT_DONE(kiln_kernel_launch_typed(kernel.get(), &geometry, nullptr, arguments,
                                       sizes, nullptr, 2));
}

TEST_F(CTest, AStreamTellsWhetherItIsBeingCaptured) {
  const OwnedService service = open();
  void* context = nullptr;
  void* stream = nullptr;
  void* graph = nullptr;
  const auto in_context = [&](const auto& call) {  // otherwise none is current
    EXPECT_EQ(drive("cuCtxPushCurrent_v2", context), 0);
    EXPECT_EQ(call(), 0);
    EXPECT_EQ(drive("cuCtxPopCurrent_v2", &context), 0);
  };
  ASSERT_EQ(drive("cuDevicePrimaryCtxRetain", &context, 1), 0);
  in_context([&] { return drive("cuStreamCreate", &stream, 0U); });
  const auto asked = [&](int device, void* of) {
    bool capturing = false;
    EXPECT_DONE(kiln_stream_is_capturing(service.get(), device,
                                         static_cast<kiln_stream>(of), &capturing));
    return capturing;
  };
  EXPECT_FALSE(asked(1, stream));
  EXPECT_FALSE(asked(1, nullptr));
  in_context([&] { return drive("cuStreamBeginCapture_v2", stream, 0); });
  EXPECT_TRUE(asked(1, stream));
  EXPECT_TRUE(asked(1, nullptr)) << "work there would end the capture";
  EXPECT_FALSE(asked(0, nullptr)) << "that is another device's";
  in_context([&] { return drive("cuStreamEndCapture", stream, &graph); });
  EXPECT_FALSE(asked(1, stream));
  bool capturing = false;
  const auto handle = static_cast<kiln_stream>(stream);
  expect_refused(kiln_stream_is_capturing(service.get(), 0, handle, &capturing),
                 "the stream is of device 1");
  expect_refused(kiln_stream_is_capturing(service.get(), 1, handle, nullptr),
                 "capturing is NULL");
}

TEST_F(CTest, MemoryThatADeviceCannotUseIsRefusedWithTheReason) {
  const OwnedService service = open();
  void* context = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(drive("cuDevicePrimaryCtxRetain", &context, 1), 0);
  ASSERT_EQ(drive("cuCtxPushCurrent_v2", context), 0);
  ASSERT_EQ(drive("cuMemAlloc_v2", &memory, std::size_t{64}), 0);
  ASSERT_EQ(drive("cuCtxPopCurrent_v2", &context), 0);
  EXPECT_DONE(kiln_check_memory(service.get(), 1, "x", memory));
  expect_refused(kiln_check_memory(service.get(), 0, "x", memory),
                 "x cannot be used on device 0");
  expect_refused(kiln_check_memory(service.get(), 0, "x", memory),
                 "it is memory of device 1");
  expect_refused(kiln_check_memory(service.get(), 1, "x", &memory),
                 "it is no memory that the driver knows");
  expect_refused(kiln_check_memory(service.get(), 2, "x", memory), "no device 2");
  expect_refused(kiln_check_memory(service.get(), 1, nullptr, memory), "what is NULL");
}

TEST_F(CTest, TheErrorOfASourceHasTheCompilersLog) {
  const OwnedService service = open();
  kiln_source source = KILN_SOURCE_INIT;
  source.source = "__global__ void f() { unknown(); }";
  source.file_name = "mine.cu";
  kiln_kernel* kernel = nullptr;
  const Outcome failed =
      outcome(kiln_get_source(service.get(), 0, &source, nullptr, &kernel));
  EXPECT_EQ(failed.code, KILN_COMPILE_FAILED);
  EXPECT_THAT(failed.message, StartsWith("mine.cu (key "));
  EXPECT_THAT(failed.log, AllOf(HasSubstr("identifier \"unknown\" is undefined"),
                                testing::Not(HasSubstr("(key "))));
  EXPECT_EQ(kernel, nullptr);

  source.file_name = "two\nlines.cu";
  const Outcome again =
      outcome(kiln_get_source(service.get(), 0, &source, nullptr, &kernel));
  EXPECT_THAT(again.log, StartsWith("two_lines.cu(1): error: "));
}

TEST_F(CTest, WrongArgumentsAreRefusedByName) {
  const OwnedService service = open();
  const OwnedKernel kernel = fill(service.get());
  kiln_kernel* fetched = nullptr;
  expect_refused(kiln_device_count(nullptr, nullptr), "the handle is NULL");
  expect_refused(kiln_device_count(service.get(), nullptr), "count is NULL");
  expect_refused(
      kiln_get_template(service.get(), 0, nullptr, nullptr, nullptr, &fetched),
      "name is NULL");
  expect_refused(
      kiln_get_template(service.get(), 7, "rope_fwd", nullptr, nullptr, &fetched),
      "device 7");
  expect_refused(
      kiln_get_template(service.get(), 0, "rope_fwd", "{", nullptr, &fetched),
      "parameters: not JSON at column");
  expect_refused(
      kiln_get_template(service.get(), 0, "rope_fwd", "[]", nullptr, &fetched),
      "must be an object");
  expect_refused(kiln_get_template(service.get(), 0, "rope_fwd", "{\"dtype\": 1.5}",
                                   nullptr, &fetched),
                 "params.dtype");
  kiln_device info{};
  expect_refused(kiln_device_info(service.get(), 0, &info), "info.struct_size is 0");
  kiln_rmsnorm_forward_args args = KILN_RMSNORM_FORWARD_ARGS_INIT;
  expect_refused(kiln_rmsnorm_forward(service.get(), 0, nullptr, &args), "dtype");
  args.struct_size += 8;
  expect_refused(kiln_rmsnorm_forward(service.get(), 0, nullptr, &args),
                 "args.struct_size is ");
  kiln_source source = KILN_SOURCE_INIT;
  expect_refused(kiln_get_source(service.get(), 0, &source, nullptr, &fetched),
                 "source.source is NULL");
  source.source = kFill;
  source.option_count = 1;
  expect_refused(kiln_get_source(service.get(), 0, &source, nullptr, &fetched),
                 "source.options is NULL");
  const kiln_geometry geometry = KILN_GEOMETRY_INIT;
  expect_refused(
      kiln_kernel_launch(kernel.get(), &geometry, nullptr, nullptr, nullptr, 2),
      "args is NULL");
  kiln_service* another = nullptr;
  expect_refused(open({"jobs=-1"}, &another),
                 "jobs: '-1' is not a whole number from 1 to 1024");
  EXPECT_EQ(another, nullptr);
  expect_refused(open({"attention=flash"}, &another), "attention: 'flash' is none of");
  expect_refused(open({"job=1"}, &another), "'job=1' is no setting");
  expect_refused(open({"jobs"}, &another), "'jobs' is no setting");
  expect_refused(open({nullptr}, &another), "options.settings[3] is NULL");
  expect_refused(kiln_setting_check("cache_limit_bytes=10"), "cache_limit_bytes: ");
  expect_refused(kiln_setting_check(nullptr), "setting is NULL");
  EXPECT_DONE(kiln_setting_check("jobs=4"));
  kiln_setting setting = KILN_SETTING_INIT;
  EXPECT_TRUE(kiln_setting_get(0, &setting));
  EXPECT_STREQ(setting.name, "cache_dir");
  for (const std::size_t size : {std::size_t{0}, sizeof(setting) + 1}) {
    setting.struct_size = size;
    EXPECT_FALSE(kiln_setting_get(0, &setting)) << "not begun with its _INIT macro";
  }
  kiln_options options = KILN_OPTIONS_INIT;
  options.setting_count = 1;
  expect_refused(kiln_service_open(&options, &another), "options.settings is NULL");
  kiln_kernel_free(nullptr);
  kiln_service_close(nullptr);
  kiln_cancel_free(nullptr);
  kiln_error_free(nullptr);
}

TEST_F(CTest, AfterAnErrorEveryOutputPointerIsNull) {
  const OwnedService service = open();
  constexpr int kNoDevice = 99;
  for (kiln_service* const handle :
       {service.get(), static_cast<kiln_service*>(nullptr)}) {
    int poison = 0;
    auto* kernel = reinterpret_cast<kiln_kernel*>(&poison);
    expect_refused(
        kiln_get_template(handle, kNoDevice, "rope_fwd", nullptr, nullptr, &kernel),
        "");
    EXPECT_EQ(kernel, nullptr);
    kernel = reinterpret_cast<kiln_kernel*>(&poison);
    expect_refused(kiln_get_source(handle, kNoDevice, nullptr, nullptr, &kernel), "");
    EXPECT_EQ(kernel, nullptr);
    kernel = reinterpret_cast<kiln_kernel*>(&poison);
    expect_refused(kiln_kernel_entry(nullptr, "f", &kernel), "");
    EXPECT_EQ(kernel, nullptr);
    auto* text = reinterpret_cast<char*>(&poison);
    const kiln_attention_problem problem = KILN_ATTENTION_PROBLEM_INIT;
    expect_refused(kiln_attention_explain(handle, kNoDevice, &problem, nullptr, &text),
                   "");
    EXPECT_EQ(text, nullptr);
  }
  const void* image = this;
  std::size_t size = 1;
  expect_refused(kiln_kernel_image(nullptr, &image, &size), "the handle is NULL");
  EXPECT_EQ(image, nullptr);
  EXPECT_EQ(size, 0U);
}

TEST_F(CTest, AStructOfAnOlderHeaderIsReadAndWrittenAsFarAsItGoes) {
  const OwnedService service = open();
  kiln_statistics statistics = KILN_STATISTICS_INIT;
  statistics.struct_size = offsetof(kiln_statistics, failed);
  statistics.failed = 77;
  statistics.loaded = 77;
  EXPECT_DONE(kiln_statistics_get(service.get(), &statistics));
  EXPECT_EQ(statistics.loaded, 0U);
  EXPECT_EQ(statistics.failed, 77U);
  EXPECT_EQ(statistics.struct_size, offsetof(kiln_statistics, failed));

  kiln_softmax_forward_args args = KILN_SOFTMAX_FORWARD_ARGS_INIT;
  args.struct_size = offsetof(kiln_softmax_forward_args, mask);
  args.mask = 200;  // not read
  args.masked_row = 200;
  args.dtype = KILN_F32;
  args.sq = 0;
  args.skv = 8;
  EXPECT_DONE(kiln_softmax_forward_prepare(service.get(), 0, &args));
  args.scale = NAN;
  expect_refused(kiln_softmax_forward_prepare(service.get(), 0, &args),
                 "softmax_forward: scale is nan: it must be finite");
}

TEST_F(CTest, MessagesAreUtf8WhateverAPathIs) {
  kiln_service* service = nullptr;
  const Outcome failed = outcome(open({"driver=/nowhere/\xff.so"}, &service));
  EXPECT_NE(failed.code, 0);
  EXPECT_THAT(failed.message, HasSubstr("/nowhere/\xef\xbf\xbd.so"));
}

TEST_F(CTest, OperationsRunAndSayTheirWorkspace) {
  const OwnedService service = open();
  std::vector<float> x(2 * 64, 1), weight(64, 1), y(2 * 64), rstd(2);
  kiln_rmsnorm_forward_args args = KILN_RMSNORM_FORWARD_ARGS_INIT;
  args.dtype = KILN_F32;
  args.y = y.data();
  args.x = x.data();
  args.weight = weight.data();
  args.rstd = rstd.data();
  args.rows = 2;
  args.cols = 64;
  EXPECT_DONE(kiln_rmsnorm_forward_prepare(service.get(), 1, &args));
  EXPECT_DONE(kiln_rmsnorm_forward(service.get(), 1, nullptr, &args));
  args.x = args.y;  // what is there but not allowed is seen behind the same fields
  expect_refused(kiln_rmsnorm_forward(service.get(), 1, nullptr, &args), "overlap");

  kiln_rmsnorm_backward_args backward = KILN_RMSNORM_BACKWARD_ARGS_INIT;
  backward.dtype = KILN_F32;
  backward.rows = 2;
  backward.cols = 64;
  std::uint64_t bytes = 0;
  EXPECT_DONE(kiln_rmsnorm_backward_workspace(service.get(), 1, &backward, &bytes));
  EXPECT_EQ(bytes % (64 * sizeof(float)), 0U);
  EXPECT_GT(bytes, 0U);
  backward.has_weight = false;
  EXPECT_DONE(kiln_rmsnorm_backward_workspace(service.get(), 1, &backward, &bytes));
  EXPECT_EQ(bytes, 0U);
}

TEST_F(CTest, AThreadThatUsesOnlyWhatIsLoadedBuildsNothingUntilItPrepares) {
  const OwnedService service = open({"cudnn=/nowhere/libcudnn.so.9"});
  const auto builds = [&] {
    kiln_statistics statistics = KILN_STATISTICS_INIT;
    EXPECT_DONE(kiln_statistics_get(service.get(), &statistics));
    return statistics.compiled;
  };
  std::vector<float> x(64), y(64);
  kiln_softmax_forward_args args = KILN_SOFTMAX_FORWARD_ARGS_INIT;
  args.dtype = KILN_F32;
  args.batch = args.heads = args.sq = 1;
  args.skv = 64;
  args.x = x.data();
  args.y = y.data();
  kiln_attention_problem problem = KILN_ATTENTION_PROBLEM_INIT;
  problem.dtype = KILN_F16;
  problem.batch = problem.heads = problem.kv_heads = 1;
  problem.sq = problem.skv = 16;
  problem.dqk = problem.dv = 64;
  std::uint64_t bytes = 0;
  kiln_kernel* kernel = nullptr;
  kiln_source source = KILN_SOURCE_INIT;
  source.source = kFill;
  const auto codes = [&] {
    return std::array{
        outcome(kiln_softmax_forward(service.get(), 0, nullptr, &args)).code,
        outcome(kiln_attention_backward_workspace(service.get(), 0, &problem, nullptr,
                                                  &bytes))
            .code,
        outcome(kiln_get_source(service.get(), 0, &source, nullptr, &kernel)).code};
  };

  EXPECT_FALSE(kiln_use_only_loaded(true));
  EXPECT_THAT(codes(), testing::Each(KILN_NOT_FOUND));
  EXPECT_EQ(builds(), 0U);
  EXPECT_DONE(kiln_softmax_forward_prepare(service.get(), 0, &args));
  EXPECT_DONE(kiln_attention_backward_prepare(service.get(), 0, &problem, nullptr));
  EXPECT_THAT(codes(), testing::ElementsAre(0, 0, KILN_NOT_FOUND));
  EXPECT_GT(bytes, 0U);
  std::thread([&] {  // the others are free to build
    EXPECT_DONE(kiln_get_source(service.get(), 0, &source, nullptr, &kernel));
  })
      .join();
  kiln_kernel_free(std::exchange(kernel, nullptr));
  EXPECT_THAT(codes(), testing::Each(0)) << "one that is found by its key alone, too";
  kiln_kernel_free(std::exchange(kernel, nullptr));
  const std::uint64_t built = builds();
  EXPECT_TRUE(kiln_use_only_loaded(false));
  args.skv = 8192;
  x.resize(8192);
  y.resize(8192);
  args.x = x.data();
  args.y = y.data();
  EXPECT_THAT(codes(), testing::Each(0));
  EXPECT_EQ(builds(), built + 1);
  kiln_kernel_free(kernel);
}

TEST_F(CTest, NormsHaveNoWeightOrTakeTheirOutputWhereTheyAreToldTo) {
  const OwnedService service = open();
  std::vector<float> x(2 * 64, 1), weight(64, 1), y(2 * 64);
  kiln_layernorm_forward_args args = KILN_LAYERNORM_FORWARD_ARGS_INIT;
  args.dtype = KILN_F32;
  args.y = y.data();
  args.x = x.data();
  args.weight = weight.data();
  args.rows = 2;
  args.cols = 64;
  args.has_weight = false;
  expect_refused(kiln_layernorm_forward(service.get(), 0, nullptr, &args),
                 "has_bias is true, and has_weight is false");
  args.has_bias = false;
  expect_refused(kiln_layernorm_forward(service.get(), 0, nullptr, &args),
                 "weight is set, and has_weight is false");
  // A program that knows no such field has a weight.
  args.struct_size = offsetof(kiln_layernorm_forward_args, has_weight);
  args.weight = nullptr;
  expect_refused(kiln_layernorm_forward(service.get(), 0, nullptr, &args),
                 "weight is null");

  std::vector<float> dx(2 * 64), mean(2), rstd(2);
  kiln_layernorm_backward_args backward = KILN_LAYERNORM_BACKWARD_ARGS_INIT;
  backward.dtype = KILN_F32;
  backward.rows = 2;
  backward.cols = 64;
  backward.dx = dx.data();
  backward.dy = y.data();
  backward.has_bias = backward.has_weight = false;
  backward.rstd = rstd.data();
  backward.from_output = true;
  expect_refused(kiln_layernorm_backward(service.get(), 0, nullptr, &backward),
                 "y is null");
  backward.y = y.data();
  backward.mean = mean.data();
  expect_refused(kiln_layernorm_backward(service.get(), 0, nullptr, &backward),
                 "mean is set, and from_output is true");
  backward.mean = nullptr;
  EXPECT_DONE(kiln_layernorm_backward(service.get(), 0, nullptr, &backward));
}

TEST_F(CTest, AttentionIsExplainedPreparedAndRun) {
  const OwnedService service = open({"cudnn=/nowhere/libcudnn.so.9"});
  kiln_attention_problem problem = KILN_ATTENTION_PROBLEM_INIT;
  kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
  problem.dtype = KILN_F16;
  problem.batch = 1;
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.sq = problem.skv = 16;
  problem.dqk = problem.dv = 64;
  problem.mask = KILN_ATTENTION_MASK_CAUSAL;
  options.stats = true;

  char* text = nullptr;
  kiln_attention_problem unset = problem;
  unset.batch = unset.skv = KILN_UNSET;
  expect_refused(kiln_attention_explain(service.get(), 1, &unset, nullptr, &text),
                 "problem.batch: ");
  EXPECT_DONE(kiln_attention_explain(service.get(), 1, &problem, &options, &text));
  const auto explained = nlohmann::json::parse(text);
  kiln_text_free(text);
  for (const char* const pass : {"forward", "backward"}) {
    EXPECT_EQ(explained[pass]["chosen"], "kiln") << explained.dump(1);
    EXPECT_EQ(explained[pass]["steps"].size(), 1U);
    EXPECT_THAT(explained[pass]["cudnn"]["probe"]["message"].get<std::string>(),
                HasSubstr("/nowhere/libcudnn.so.9"));
  }

  const std::size_t tokens = 16;
  std::vector<std::uint16_t> q(tokens * 2 * 64), k(tokens * 64), v(tokens * 64);
  std::vector<std::uint16_t> o(q.size());
  std::vector<float> stats(tokens * 2);
  std::uint64_t bytes = 1;
  EXPECT_DONE(
      kiln_attention_forward_workspace(service.get(), 1, &problem, &options, &bytes));
  EXPECT_EQ(bytes, 0U);
  kiln_attention_tensors tensors = KILN_ATTENTION_TENSORS_INIT;
  tensors.q = q.data();
  tensors.k = k.data();
  tensors.v = v.data();
  tensors.o = o.data();
  tensors.stats = stats.data();
  EXPECT_DONE(
      kiln_attention_forward(service.get(), 1, nullptr, &problem, &tensors, &options));
  tensors.stats = nullptr;
  expect_refused(
      kiln_attention_forward(service.get(), 1, nullptr, &problem, &tensors, &options),
      "stats is null");
  EXPECT_DONE(
      kiln_attention_backward_workspace(service.get(), 1, &problem, &options, &bytes));
  EXPECT_GT(bytes, 0U);
  problem.mask = 200;
  expect_refused(kiln_attention_backward_prepare(service.get(), 1, &problem, &options),
                 "problem.mask: it is none of AttentionMask");
  problem.mask = KILN_ATTENTION_MASK_NONE;
  problem.heads = 3;
  problem.kv_heads = 2;
  expect_refused(kiln_attention_backward_prepare(service.get(), 1, &problem, &options),
                 "heads");
}

TEST_F(CTest, ARequestedCancelEndsABuild) {
  const OwnedService service = open();
  const OwnedCancel cancel(kiln_cancel_new());
  kiln_cancel_request(cancel.get());
  kiln_source source = KILN_SOURCE_INIT;
  source.source = kFill;
  kiln_kernel* kernel = nullptr;
  EXPECT_EQ(
      outcome(kiln_get_source(service.get(), 0, &source, cancel.get(), &kernel)).code,
      KILN_CANCELLED);
  EXPECT_EQ(kernel, nullptr);
}

TEST_F(CTest, AKernelOutlivesItsService) {
  OwnedService service = open();
  const OwnedKernel kernel = fill(service.get());
  service.reset();
  float value = 0;
  float* y = &value;
  float x = 1;
  void* const arguments[] = {&y, &x};
  const std::size_t sizes[] = {sizeof(y), sizeof(x)};
  const kiln_geometry geometry = KILN_GEOMETRY_INIT;
  EXPECT_DONE(
      kiln_kernel_launch(kernel.get(), &geometry, nullptr, arguments, sizes, 2));
}

TEST_F(CTest, AForkedChildIsToldSoAndMayCloseWhatItGot) {
  const OwnedService service = open();
  OwnedKernel kernel = fill(service.get());
  const pid_t child = ::fork();
  if (child == 0) {
    kiln_kernel* again = nullptr;
    kiln_source source = KILN_SOURCE_INIT;
    source.source = kFill;
    const bool is_told =
        outcome(kiln_get_source(service.get(), 0, &source, nullptr, &again)).code ==
        KILN_FORKED;
    const bool is_refused = outcome(kiln_device_count(service.get(), nullptr)).code ==
                            KILN_INVALID_ARGUMENT;
    kernel.reset();
    ::_exit(is_told && is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CTest, EventsAndLogLinesReachTheirCallbacks) {
  struct Told {
    std::mutex mutex;
    std::vector<int> kinds;
    std::vector<std::string> lines;
  } told;
  kiln_options options = KILN_OPTIONS_INIT;
  options.on_event = [](void* user, const kiln_event* event) {
    auto& to = *static_cast<Told*>(user);
    const std::lock_guard lock(to.mutex);
    to.kinds.push_back(event->kind);
    EXPECT_THAT(event->kernel, StrEq("kernel.cu"));
    EXPECT_EQ(event->struct_size, sizeof(kiln_event));
  };
  options.on_event_user = &told;
  EXPECT_DONE(kiln_log_to(
      [](void* user, int level, const char* line) {
        auto& to = *static_cast<Told*>(user);
        const std::lock_guard lock(to.mutex);
        to.lines.push_back(std::to_string(level) + " " + line);
      },
      &told));
  testing::internal::CaptureStderr();
  {
    // Nobody can make that folder: a warning.
    const OwnedService service = open({"cache_dir=/proc/kiln"}, options);
    std::ignore = fill(service.get());
  }
  EXPECT_DONE(kiln_log_to(nullptr, nullptr));
  EXPECT_THAT(told.kinds, ElementsAre(KILN_EVENT_COMPILED, KILN_EVENT_NOT_STORED,
                                      KILN_EVENT_LOADED));
  EXPECT_THAT(told.lines, Contains(AllOf(StartsWith(std::to_string(KILN_LOG_WARNING)),
                                         HasSubstr("/proc/kiln"))));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace kiln
