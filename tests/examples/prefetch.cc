// Kernels that will be needed are built while the program does something else: it reads
// its data, say. get() then finds them, or waits for what is left of the build.

#include <fmt/core.h>
#include <kiln/kiln.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

std::vector<kiln::Request> kernels_of_a_training_step() {
  std::vector<kiln::Request> kernels;
  for (const char* name : {"scaled_upper_triang_masked_softmax_fwd",
                           "scaled_upper_triang_masked_softmax_bwd"})
    kernels.push_back({name, {{"dtype", "bf16"}, {"max_cols", "2048"}}});
  return kernels;
}

/// Stands for what else a program has to do before its first step.
std::string read_data() {
  std::string data;
  for (int i = 0; i < 1'000'000; ++i) data += static_cast<char>('a' + i % 26);
  return data;
}

kiln::Result<void> run(kiln::Service& service, const kiln::Device& device) {
  const std::vector<kiln::Request> kernels = kernels_of_a_training_step();
  for (const kiln::Request& kernel : kernels) {
    // Fails only for a wrong request. What else goes wrong is get()'s to tell.
    if (auto started = service.prefetch(kernel, device); !started)
      return started;
  }

  fmt::print("read {} bytes of data meanwhile\n", read_data().size());

  using Clock = std::chrono::steady_clock;
  for (const kiln::Request& request : kernels) {
    const auto began = Clock::now();
    const auto kernel = service.get(request, device);
    if (!kernel)
      return tl::unexpected(kernel.error());
    const std::chrono::duration<double, std::milli> waited = Clock::now() - began;
    fmt::print("{}: ready after {:.1f} ms\n", kernel->name(), waited.count());
  }
  return {};
}

}  // namespace

int main() {
  auto service = kiln::Service::open();
  if (!service) {
    fmt::print(stderr, "{}\n", service.error().message);
    return 1;
  }
  const auto device = service->device();
  if (!device) {
    fmt::print(stderr, "{}\n", device.error().message);
    return 1;
  }
  if (const auto done = run(*service, *device); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  const kiln::Statistics statistics = service->statistics();
  fmt::print("{} compiled, {} found in the cache\n", statistics.compiled,
             statistics.disk_hits);
  return 0;
}
