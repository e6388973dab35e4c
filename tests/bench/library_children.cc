#include "tests/bench/library_children.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <cstdio>
#include <vector>

#include "tests/bench/rows.h"
#include "util/bytes.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

using Arguments = std::vector<std::string>;

Result<void> get_first(const Arguments& arguments) {
  auto service = KILN_TRY(open_library(arguments.at(0)));
  KILN_TRY(service.get(library_request(), service.devices().at(0)));
  if (service.statistics().disk_hits != 1)
    return fail(ErrorCode::kNotFound, "the kernel was no hit");
  return {};
}

template <typename Function>
Function* driver_function(const char* name) {
  void* const library = ::dlopen(simulated_driver().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr
                            : reinterpret_cast<Function*>(::dlsym(library, name));
}

Result<void> start_driver() {
  CUcontext context = nullptr;
  if (driver_function<decltype(cuInit)>("cuInit")(0) != CUDA_SUCCESS ||
      driver_function<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(
          &context, 0) != CUDA_SUCCESS ||
      driver_function<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent_v2")(context) !=
          CUDA_SUCCESS)
    return fail(ErrorCode::kDevice, "the simulated driver did not start");
  return {};
}

Result<void> read_and_load(const Arguments& arguments) {
  constexpr std::size_t kMost = 64U << 20U;
  KILN_TRY(start_driver());
  const auto load = driver_function<decltype(cuModuleLoadDataEx)>("cuModuleLoadDataEx");
  const Seconds taken = KILN_TRY(timed([&]() -> Result<void> {
    const std::string object = KILN_TRY(read_text_file(arguments.at(0), kMost));
    const std::size_t cubin = object.find(
        "\x7f"
        "ELF");
    CUmodule module = nullptr;
    if (XXH3_128bits(object.data(), object.size()).low64 == 0 ||
        cubin == std::string::npos ||
        load(&module, object.data() + cubin, 0, nullptr, nullptr) != CUDA_SUCCESS)
      return fail(ErrorCode::kDevice, arguments.at(0) + " could not be loaded");
    return {};
  }));
  fmt::print("{}\n", taken.count());
  return {};
}

}  // namespace

Result<void> do_child(std::string_view name, const Arguments& arguments) {
  if (name == kFirstGetChild)
    return get_first(arguments);
  if (name == kReadAndLoadChild)
    return read_and_load(arguments);
  return fail(ErrorCode::kInvalidArgument, fmt::format("no child is called {}", name));
}

Result<Service> open_library(const std::string& root) {
  Options options;
  options.cache_dir = root;
  options.driver = simulated_driver();
  return Service::open(options);
}

std::filesystem::path simulated_driver() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
         "lib/libkiln-simulated-driver.so";
}

Request library_request() {
  return {"scaled_softmax_fwd", {{"dtype", "bf16"}, {"max_cols", "1024"}}};
}

}  // namespace kiln::bench
