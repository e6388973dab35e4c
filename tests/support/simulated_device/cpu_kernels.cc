#include "tests/support/simulated_device/cpu_kernels.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/c.h"
#include "request/selection.h"
#include "tests/support/cpu_kernel/run_plan.h"
#include "tests/support/simulated_driver/simulated_driver.h"
#include "util/mutex.h"

using kiln::ErrorCode;
using kiln::Mutex;
using kiln::MutexLock;
using kiln::Result;
using kiln_cpu::Variant;

/// Thread safety: every method may run concurrently.
struct kiln_cpu_kernels {
 public:
  explicit kiln_cpu_kernels(decltype(&kiln_simulated_last_image) last_image)
      : last_image_(last_image) {}

  void name_last_image(const char* kernel) {
    if (const char* const image = last_image_())
      name(image, kernel);
  }
  void name(const char* image, const char* kernel) {
    const MutexLock lock(mutex_);
    names_[image].emplace(kernel);
  }
  [[nodiscard]] const char* name_of(std::string_view image) {
    const MutexLock lock(mutex_);
    const auto found = names_.find(image);
    return found == names_.end() ? "" : found->second.begin()->c_str();
  }

  /// Errors: kNotFound, a kernel that is not here; those of Variant.
  [[nodiscard]] Result<void> run(const kiln_simulated_launch& launch, void** parameters,
                                 std::span<const std::size_t> sizes);

 private:
  [[nodiscard]] Result<const Variant*> find(const kiln_simulated_launch& launch);

  const decltype(&kiln_simulated_last_image) last_image_;
  Mutex mutex_;
  // Parameters that make no difference to the compiler give kernels one image. Names
  // are never removed.
  std::map<std::string, std::set<std::string>, std::less<>> names_
      KILN_GUARDED_BY(mutex_);
};

namespace {

/// Of the calling thread; and the one that it has taken.
struct Errors {
  std::string last;
  std::string taken;
};
Errors& errors() {
  thread_local Errors both;
  return both;
}

/// By name, with every parameter, and entry point.
using Index = std::map<std::pair<std::string, std::string>, const Variant*>;
const Index& compiled_kernels() {
  static const auto* const index = [] {
    auto* const all = new Index;
    for (const Variant& each : kiln_cpu::kernels_of_program())
      all->try_emplace({kiln::request::format_template(each.kernel(), each.params()),
                        std::string(each.entry())},
                       &each);
    return all;
  }();
  return *index;
}

// The executor runs one launch at a time, on whichever driver.
Mutex& executor_mutex() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const mutex = new Mutex;
  return *mutex;
}

int run(const kiln_simulated_launch* launch, void** parameters,
        const std::size_t* sizes, std::size_t count, void* user) {
  const auto done =
      static_cast<kiln_cpu_kernels*>(user)->run(*launch, parameters, {sizes, count});
  if (done)
    return CUDA_SUCCESS;
  errors().last =
      fmt::format("{} on the CPU: {}", launch->function, done.error().message);
  return done.error().code == ErrorCode::kNotFound ? CUDA_ERROR_NOT_SUPPORTED
                                                   : CUDA_ERROR_UNKNOWN;
}

template <typename Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

Result<const Variant*> kiln_cpu_kernels::find(const kiln_simulated_launch& launch) {
  const MutexLock lock(mutex_);
  const auto named = names_.find(std::string_view(launch.image));
  if (named == names_.end())
    return kiln::fail(ErrorCode::kNotFound,
                      fmt::format("nobody has named its image, {}", launch.image));
  for (const std::string& name : named->second) {
    const auto found = compiled_kernels().find({name, launch.function});
    if (found != compiled_kernels().end())
      return found->second;
  }
  const std::string& name = *named->second.begin();
  const bool is_of_template = name.find(':') != std::string::npos;
  return kiln::fail(
      ErrorCode::kNotFound,
      is_of_template
          ? fmt::format("{} is not among the kernels that "
                        "tests/support/simulated_device/CMakeLists.txt lists",
                        name)
          : fmt::format("{} has no function here; give it one by "
                        "kiln.testing.define_kernel(), in C by "
                        "kiln_simulated_register_kernel()",
                        name));
}

Result<void> kiln_cpu_kernels::run(const kiln_simulated_launch& launch,
                                   void** parameters,
                                   std::span<const std::size_t> sizes) {
  const auto variant = find(launch);
  if (!variant)
    return tl::unexpected(variant.error());
  if (parameters == nullptr && !sizes.empty())
    return kiln::fail(ErrorCode::kInvalidArgument,
                      "its parameters were not given by their addresses");
  kiln::Geometry geometry{.shared_bytes = launch.dynamic_shared_bytes};
  std::copy_n(launch.grid, 3, geometry.grid.begin());
  std::copy_n(launch.block, 3, geometry.block.begin());
  const MutexLock lock(executor_mutex());
  return (*variant)->launch_with(geometry, {}, {parameters, sizes.size()}, sizes);
}

kiln_cpu_kernels* kiln_cpu_kernels_install(const char* driver) {
  void* const library = ::dlopen(driver, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): its text is the thread's own in glibc
    errors().last = ::dlerror();
    return nullptr;
  }
  auto* const last_image =
      symbol<decltype(kiln_simulated_last_image)>(library, "kiln_simulated_last_image");
  auto* const enlist = symbol<decltype(kiln_simulated_register_any_kernel)>(
      library, "kiln_simulated_register_any_kernel");
  if (last_image == nullptr || enlist == nullptr) {
    errors().last = fmt::format("{}: not the simulated driver of this build", driver);
    return nullptr;
  }
  auto* const kernels = new kiln_cpu_kernels(last_image);
  enlist(&run, kernels);
  return kernels;
}

// A kernel is loaded by the thread that then reports it.
void kiln_cpu_kernels_on_event(void* kernels, const kiln_event* event) {
  if (event->kind == KILN_EVENT_LOADED)
    static_cast<kiln_cpu_kernels*>(kernels)->name_last_image(event->kernel);
}

void kiln_cpu_kernels_name_image(kiln_cpu_kernels* kernels, const char* image,
                                 const char* kernel) {
  kernels->name(image, kernel);
}

const char* kiln_cpu_kernels_name(kiln_cpu_kernels* kernels, const char* image) {
  return kernels->name_of(image);
}

const char* kiln_cpu_kernels_take_error() {
  Errors& both = errors();
  both.taken = std::exchange(both.last, {});
  return both.taken.c_str();
}
