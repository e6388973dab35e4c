// kiln-bench-library: what a program waits for that links the library: hits in memory,
// launches, its first kernel. On the simulated driver, which says nothing about a GPU.

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bench/library_children.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatches =
    50;  // of settings.batch_calls: a call takes nanoseconds

/// A service that has loaded the kernel that is asked for.
struct Library {
  std::shared_ptr<const ScratchFolder> scratch;
  std::optional<Service> service;
  Device device;
  Request request = library_request();
  std::optional<Kernel> kernel;
};

Result<std::shared_ptr<Library>> open(const Settings& settings) {
  auto library = std::make_shared<Library>();
  library->scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  library->service = KILN_TRY(open_library(library->scratch->path() / "cache"));
  library->device = library->service->devices().at(0);
  library->kernel = KILN_TRY(library->service->get(library->request, library->device));
  return library;
}

Seconds processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Processor time a call of `threads` threads that all make `calls` of them at once:
/// what they cost each other counts, waiting for a core does not.
template <typename Call>
Result<Seconds> each_of_many(unsigned threads, std::size_t calls, const Call& call) {
  std::atomic<unsigned> ready = 0;
  std::atomic<bool> failed = false;
  std::vector<Seconds> taken(threads);
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ++ready;
      while (ready < threads) std::this_thread::yield();
      const Seconds began = processor_time();
      for (std::size_t done = 0; done < calls; ++done) {
        if (!call())
          failed = true;
      }
      taken[i] = processor_time() - began;
    });
  }
  for (std::thread& thread : running) thread.join();
  if (failed)
    return fail(ErrorCode::kUnavailable, "a call failed");
  Seconds sum{0};
  for (const Seconds& one : taken) sum += one;
  return sum / (static_cast<double>(threads) * static_cast<double>(calls));
}

Row memory_row(const Settings& settings, unsigned threads) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto library = KILN_TRY(open(settings));
    const auto get = [=] {
      return library->service->get(library->request, library->device);
    };
    const std::size_t calls = settings.batch_calls * kBatches;
    if (threads == 1)
      return Sides{.measured = [=] { return timed_each(calls, get); }};
    return Sides{
        .measured = [=] { return each_of_many(threads, calls / threads, get); }};
  };
  return {.name = fmt::format("memory/{}", threads),
          .what = fmt::format("hit in memory, the same request, {} thread{}", threads,
                              threads == 1 ? "" : "s"),
          .limit = {1, Seconds(100e-9)},
          .prepare = prepare};
}

Row spelled_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto library = KILN_TRY(open(settings));
    return Sides{.measured = [=] {
      return timed_each(settings.batch_calls, [&] {
        return library->service->get(library_request(), library->device);
      });
    }};
  };
  return {.name = "memory/built",
          .what = "hit in memory, a request built each time",
          .limit = {1, Seconds(1e-6)},
          .prepare = prepare};
}

/// What cuLaunchKernel gets for the softmax kernel.
struct Launch {
  void* out = nullptr;
  void* in = nullptr;
  float scale = 1;
  std::int64_t rows = 64;
  std::int64_t cols = 1024;
};

/// What a launch calls of the simulated driver.
struct DriverCalls {
  decltype(&cuLaunchKernel) launch = nullptr;
  decltype(&cuStreamGetCtx) context_of = nullptr;
  CUstream stream = nullptr;
};

/// With the context of device 0 current, and in it a stream where one is asked for.
Result<DriverCalls> driver_calls(bool with_stream) {
  void* const driver = ::dlopen(simulated_driver().c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto find = [driver]<typename Call>(const char* name, Call* call) {
    *call = reinterpret_cast<Call>(::dlsym(driver, name));
    return *call != nullptr;
  };
  DriverCalls calls;
  decltype(&cuCtxSetCurrent) make_current = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuStreamCreate) make_stream = nullptr;
  CUcontext context = nullptr;
  if (!find("cuLaunchKernel", &calls.launch) ||
      !find("cuStreamGetCtx", &calls.context_of) ||
      !find("cuCtxSetCurrent", &make_current) ||
      !find("cuDevicePrimaryCtxRetain", &retain) ||
      !find("cuStreamCreate", &make_stream) || retain(&context, 0) != CUDA_SUCCESS ||
      make_current(context) != CUDA_SUCCESS ||
      (with_stream && make_stream(&calls.stream, 0) != CUDA_SUCCESS))
    return fail(ErrorCode::kDevice, "the simulated driver has no context or stream");
  return calls;
}

/// A launch of that kernel with the driver alone.
Result<void> launch_by_hand(const DriverCalls& driver, const Kernel& kernel,
                            const Geometry& geometry) {
  Launch values;
  void* arguments[] = {&values.out, &values.in, &values.scale, &values.rows,
                       &values.cols};
  CUcontext owner = nullptr;
  if ((driver.stream != nullptr &&
       driver.context_of(driver.stream, &owner) != CUDA_SUCCESS) ||
      driver.launch(kernel.function(), geometry.grid[0], geometry.grid[1],
                    geometry.grid[2], geometry.block[0], geometry.block[1],
                    geometry.block[2], geometry.shared_bytes, driver.stream, arguments,
                    nullptr) != CUDA_SUCCESS)
    return fail(ErrorCode::kDevice, "the simulated driver launched nothing");
  return {};
}

Result<Geometry> geometry_of(const Kernel& kernel) {
  return kernel.geometry({{"rows", Launch{}.rows}, {"cols", Launch{}.cols}});
}

Row launch_row(const Settings& settings, bool with_stream) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto library = KILN_TRY(open(settings));
    const Geometry geometry = KILN_TRY(geometry_of(*library->kernel));
    const DriverCalls driver = KILN_TRY(driver_calls(with_stream));
    const auto measured = [=] {
      const Launch with;
      return library->kernel->launch(geometry, driver.stream, with.out, with.in,
                                     with.scale, with.rows, with.cols);
    };
    const auto floor = [=] {
      return launch_by_hand(driver, *library->kernel, geometry);
    };
    const std::size_t calls = settings.batch_calls;
    return Sides{.measured = [=] { return timed_each(calls, measured); },
                 .floor = [=] { return timed_each(calls, floor); }};
  };
  return {.name = with_stream ? "launch/stream" : "launch",
          .what = with_stream ? "launch of a kernel in a stream of its own"
                              : "launch of a kernel",
          .floor = with_stream
                       ? "cuStreamGetCtx and cuLaunchKernel of the simulated driver"
                       : "cuLaunchKernel of the simulated driver",
          .limit = {1, Seconds(100e-9)},
          .prepare = prepare};
}

/// What an operation that the thread has called before adds to the launch of its
/// kernel: the look-up of the call, the checks of its addresses, the context of the
/// device.
Row operation_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto library = KILN_TRY(open(settings));
    const Geometry geometry = KILN_TRY(geometry_of(*library->kernel));
    const DriverCalls driver = KILN_TRY(driver_calls(true));
    // Nothing is read or written at these: the simulated driver runs no kernel.
    const auto memory =
        std::make_shared<std::vector<float>>(2 * std::size_t{64} * 1024);
    const auto operation = [=] {
      return ops::softmax_forward(*library->service, library->kernel->device(),
                                  driver.stream,
                                  {.dtype = ops::DType::kBf16,
                                   .y = memory->data(),
                                   .x = memory->data() + memory->size() / 2,
                                   .sq = Launch{}.rows,
                                   .skv = Launch{}.cols});
    };
    KILN_TRY(operation());
    const auto floor = [=] {
      return launch_by_hand(driver, *library->kernel, geometry);
    };
    const std::size_t calls = settings.batch_calls;
    return Sides{.measured = [=] { return timed_each(calls, operation); },
                 .floor = [=] { return timed_each(calls, floor); }};
  };
  return {.name = "operation",
          .what = "operation that was called before",
          .floor = "cuStreamGetCtx and cuLaunchKernel of the simulated driver",
          .limit = {1, Seconds(500e-9)},
          .prepare = prepare};
}

Result<fs::path> only_object(const fs::path& cache) {
  for (const auto& entry : fs::recursive_directory_iterator(cache / "objects")) {
    if (entry.is_regular_file())
      return entry.path();
  }
  return fail(ErrorCode::kNotFound, "nothing was stored");
}

Row first_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto library = KILN_TRY(open(settings));
    const std::string root = library->scratch->path() / "cache";
    const std::string object = KILN_TRY(only_object(root));
    return Sides{
        .measured =
            [=, kept = library] { return wall(child_command(kFirstGetChild, {root})); },
        .floor = [=]() -> Result<Seconds> {
          const auto by_hand =
              KILN_TRY(run_process(child_command(kReadAndLoadChild, {object})));
          return by_hand.wall + Seconds(std::stod(by_hand.output));
        }};
  };
  return {.name = "first",
          .what = "process that gets its first kernel, a hit on disk",
          .floor =
              "process that starts the driver, reads, hashes and loads by hand, and "
              "reading, hashing and loading once more",
          .limit = {1},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> all_rows(const Settings& settings) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs yet
  ::setenv("KILN_SIMULATED_KERNELS", "record", 0);
  return {memory_row(settings, 1),    memory_row(settings, 8),
          spelled_row(settings),      launch_row(settings, false),
          launch_row(settings, true), operation_row(settings),
          first_row(settings)};
}

}  // namespace kiln::bench
