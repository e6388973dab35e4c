// Memory of this process as that of simulated devices: operations of kiln/c.h compute
// what they should there, and what cannot be computed is an error that says why.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "codec/digest.h"
#include "kiln/c.h"
#include "tests/support/paths.h"
#include "tests/support/simulated_device/cpu_kernels.h"
#include "tests/support/simulated_driver.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors/numbers.h"

// C++ warns of what a designated initializer leaves at zero, C does not.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace kiln::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// "", or what went wrong.
std::string outcome(kiln_result failed) {
  const std::string text = kiln_error_message(failed);
  EXPECT_EQ(text.empty(), failed == nullptr);
  kiln_error_free(failed);
  return text;
}

template <typename T>
std::vector<T> numbers(std::size_t count) {
  std::vector<T> all(count);
  fill_normally(std::span(all));
  return all;
}

/// To rounding, after some roundings of floats.
template <typename T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(in_ulp<T>(got[i].value(), want[i], 1e-5 * std::fabs(want[i])), 0.5)
        << "element " << i << ": " << got[i].value() << ", not " << want[i];
}

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kCols = 60;

/// Of [kRows, kCols], row by row.
template <typename T>
std::vector<double> each_row(const std::vector<T>& x,
                             const std::function<void(const std::vector<double>&,
                                                      std::vector<double>&)>& append) {
  std::vector<double> all;
  for (std::int64_t row = 0; row < kRows; ++row)
    append(values(&x[static_cast<std::size_t>(row * kCols)], kCols), all);
  return all;
}

template <typename T>
void check_softmax(kiln_service* service, int device, kiln_dtype dtype) {
  const auto x = numbers<T>(kRows * kCols);
  std::vector<T> y(x.size());
  kiln_softmax_forward_args args = KILN_SOFTMAX_FORWARD_ARGS_INIT;
  args.dtype = dtype;
  args.y = y.data();
  args.x = x.data();
  args.sq = kRows;
  args.skv = kCols;
  args.scale = 0.5F;
  ASSERT_EQ(outcome(kiln_softmax_forward(service, device, nullptr, &args)), "");
  expect_near(y, each_row(x, [](const auto& row, auto& all) {
                double sum = 0;
                for (const double each : row) sum += std::exp(0.5 * each);
                for (const double each : row) all.push_back(std::exp(0.5 * each) / sum);
              }));
}

template <typename T>
void check_rmsnorm(kiln_service* service, int device, kiln_dtype dtype) {
  const auto x = numbers<T>(kRows * kCols);
  const auto weight = numbers<T>(kCols);
  std::vector<T> y(x.size());
  kiln_rmsnorm_forward_args args = KILN_RMSNORM_FORWARD_ARGS_INIT;
  args.dtype = dtype;
  args.y = y.data();
  args.x = x.data();
  args.weight = weight.data();
  args.rows = kRows;
  args.cols = kCols;
  ASSERT_EQ(outcome(kiln_rmsnorm_forward(service, device, nullptr, &args)), "");
  expect_near(y, each_row(x, [&](const auto& row, auto& all) {
                double squares = 0;
                for (const double each : row) squares += each * each;
                const double rstd = 1 / std::sqrt(squares / kCols + 1e-6);
                for (std::size_t j = 0; j < row.size(); ++j)
                  all.push_back(row[j] * rstd * weight[j].value());
              }));
}

void check_operations(kiln_service* service, int device) {
  check_softmax<F32>(service, device, KILN_F32);
  check_softmax<F16>(service, device, KILN_F16);
  check_rmsnorm<F32>(service, device, KILN_F32);
  check_rmsnorm<Bf16>(service, device, KILN_BF16);
}

class SimulatedDevice : public testing::Test {
 protected:
  SimulatedDevice()
      : library_(::dlopen(paths::kCpuKernels, RTLD_NOW | RTLD_LOCAL)),
        kernels_(find<decltype(kiln_cpu_kernels_install)>("kiln_cpu_kernels_install")(
            driver_.path().c_str())) {
    EXPECT_NE(kernels_, nullptr) << take_error();
    const std::string cache = temp_.path() / "cache";
    const std::string driver = driver_.path();
    kiln_options options = KILN_OPTIONS_INIT;
    options.cache_dir = cache.c_str();
    options.driver = driver.c_str();
    options.jobs = 2;
    options.on_event =
        find<decltype(kiln_cpu_kernels_on_event)>("kiln_cpu_kernels_on_event");
    options.on_event_user = kernels_;
    EXPECT_EQ(outcome(kiln_service_open(&options, &service_)), "");
  }
  ~SimulatedDevice() override { kiln_service_close(service_); }

  template <typename Function>
  Function* find(const char* name) const {
    auto* const function = library_ == nullptr
                               ? nullptr
                               : reinterpret_cast<Function*>(::dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function;
  }
  [[nodiscard]] std::string take_error() const {
    return find<decltype(kiln_cpu_kernels_take_error)>("kiln_cpu_kernels_take_error")();
  }
  [[nodiscard]] std::string name_of(const char* image) const {
    return find<decltype(kiln_cpu_kernels_name)>("kiln_cpu_kernels_name")(kernels_,
                                                                          image);
  }

  const SimulatedDriver driver_{"9.0,9.0"};
  const TempDir temp_;
  void* const library_;
  kiln_cpu_kernels* const kernels_;
  kiln_service* service_ = nullptr;
};

TEST_F(SimulatedDevice, ComputesEachTypeOfAnEntryPoint) {
  check_operations(service_, 1);
  const auto launches = driver_.launches();
  ASSERT_EQ(launches.size(), 4U);
  EXPECT_STREQ(launches[0].function, launches[1].function);
  EXPECT_STRNE(launches[0].image, launches[1].image);
  EXPECT_EQ(name_of(launches[1].image), "scaled_softmax_fwd:dtype=f16,max_cols=64");
  EXPECT_THAT(name_of(launches[3].image), StartsWith("rmsnorm_fwd:dtype=bf16,"));
  EXPECT_EQ(take_error(), "");

  kiln_kernel* kernel = nullptr;
  ASSERT_EQ(outcome(kiln_get_template(service_, 1, "scaled_softmax_fwd",
                                      R"({"dtype": "f16", "max_cols": 64})", nullptr,
                                      &kernel)),
            "");
  const void* image = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(outcome(kiln_kernel_image(kernel, &image, &size)), "");
  EXPECT_EQ(Digest::of({static_cast<const std::byte*>(image), size}).hex(),
            launches[1].image);
  kiln_kernel_free(kernel);
}

TEST_F(SimulatedDevice, ComputesForThreadsOfEachDevice) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([this, thread] {
      for (int turn = 0; turn < 3; ++turn) check_operations(service_, thread % 2);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(driver_.launches().size(), 48U);
}

TEST_F(SimulatedDevice, SaysWhyItDoesNotCompute) {
  const auto x = numbers<F16>(4000);
  std::vector<F16> y(x.size());
  kiln_softmax_forward_args args = KILN_SOFTMAX_FORWARD_ARGS_INIT;
  args.dtype = KILN_F16;
  args.y = y.data();
  args.x = x.data();
  args.sq = 1;
  args.skv = 4000;  // for f16, nobody compiles this length
  EXPECT_THAT(outcome(kiln_softmax_forward(service_, 1, nullptr, &args)),
              HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
  EXPECT_THAT(take_error(),
              AllOf(StartsWith("scaled_softmax_fwd on the CPU: "),
                    HasSubstr("scaled_softmax_fwd:dtype=f16,max_cols=4096 is not")));
  EXPECT_EQ(take_error(), "") << "it was taken";

  args.skv = 60;
  args.y = reinterpret_cast<void*>(std::uintptr_t{4096});  // mapped nowhere
  EXPECT_THAT(outcome(kiln_softmax_forward(service_, 1, nullptr, &args)),
              HasSubstr("CUDA_ERROR_UNKNOWN"));
  EXPECT_THAT(take_error(), HasSubstr("block 0, thread 0 writes address 0x10"));

  kiln_source source = KILN_SOURCE_INIT;
  source.source = "extern \"C\" __global__ void nothing() {}";
  kiln_kernel* kernel = nullptr;
  ASSERT_EQ(outcome(kiln_get_source(service_, 1, &source, nullptr, &kernel)), "");
  const kiln_geometry geometry = KILN_GEOMETRY_INIT;
  EXPECT_THAT(
      outcome(kiln_kernel_launch(kernel, &geometry, nullptr, nullptr, nullptr, 0)),
      HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
  kiln_kernel_free(kernel);
  EXPECT_THAT(take_error(),
              HasSubstr("kernel.cu has no function here; give it one by"));

  check_softmax<F32>(service_, 1, KILN_F32);
}

}  // namespace
}  // namespace kiln::test
