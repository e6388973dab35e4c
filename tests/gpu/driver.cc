#include "tests/gpu/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

namespace kiln::gpu_test {
namespace {

struct Found {
  const Driver* driver = nullptr;  // never destroyed, as its library never is
  std::string why_not;
};

void* symbol(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr)
    throw std::runtime_error(fmt::format("the driver has no {}", name));
  return found;
}

Driver table_of(void* library) {
  Driver driver;
  driver.read_ptx_from = reinterpret_cast<decltype(driver.read_ptx_from)>(
      ::dlsym(library, "kiln_simulated_read_ptx_from"));
  driver.is_simulated = driver.read_ptx_from != nullptr;
#define KILN_GPU_TEST_QUOTED(name) #name
#define KILN_GPU_TEST_TEXT(name) KILN_GPU_TEST_QUOTED(name)  // as cuda.h maps it
#define KILN_GPU_TEST_LOOK_UP(function)                      \
  driver.function = reinterpret_cast<decltype(&::function)>( \
      symbol(library, KILN_GPU_TEST_TEXT(function)));
  KILN_GPU_TEST_FUNCTIONS(KILN_GPU_TEST_LOOK_UP)
#undef KILN_GPU_TEST_LOOK_UP
#undef KILN_GPU_TEST_TEXT
#undef KILN_GPU_TEST_QUOTED
  driver.create_context = reinterpret_cast<decltype(driver.create_context)>(
      symbol(library, "cuCtxCreate_v2"));
  driver.elapsed_ms = reinterpret_cast<decltype(driver.elapsed_ms)>(
      symbol(library, "cuEventElapsedTime"));
  return driver;
}

Found find() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no test sets it
  const char* const chosen = std::getenv("KILN_DRIVER");
  const std::string name =
      chosen == nullptr || *chosen == '\0' ? "libcuda.so.1" : chosen;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): its text is the thread's own in glibc
    return {nullptr, fmt::format("no CUDA driver: {}", ::dlerror())};
  }
  const Driver driver = table_of(library);
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    return {nullptr, fmt::format("the CUDA driver does not start: cuInit: {}",
                                 static_cast<int>(result))};
  return {new Driver(driver), {}};
}

const Found& found() {
  static const auto* const once = new Found(find());
  return *once;
}

}  // namespace

const Driver* find_driver() {
  return found().driver;
}

const std::string& why_no_driver() {
  return found().why_not;
}

void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS)
    return;
  const char* name = nullptr;
  driver().cuGetErrorName(result, &name);
  throw std::runtime_error(fmt::format("{}: {} ({})", call,
                                       name == nullptr ? "unknown" : name,
                                       static_cast<int>(result)));
}

}  // namespace kiln::gpu_test
