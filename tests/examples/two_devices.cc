// Every device of the machine gets the binary that was built for it: devices of one
// kind share it, others never do. The kernel is asked for by the device; nothing is
// assumed.

#include <fmt/core.h>
#include <kiln/kiln.h>

#include <cstdint>
#include <cstdio>

namespace {

kiln::Result<void> run_on(kiln::Service& service, const kiln::Device& device) {
  const kiln::Request softmax{"scaled_softmax_fwd",
                              {{"dtype", "f16"}, {"max_cols", "1024"}}};
  const auto kernel = service.get(softmax, device);
  if (!kernel)
    return tl::unexpected(kernel.error());

  // Null stands for tensors in this device's memory: without rows, none is touched.
  void* out = nullptr;
  const void* in = nullptr;
  const std::int64_t rows = 0;
  const std::int64_t cols = 1024;
  const auto geometry = kernel->geometry({{"rows", rows}, {"cols", cols}});
  // The null stream is that of the context current to this thread; here there is none,
  // so it is the kernel's own.
  auto launched = kernel->launch(geometry, nullptr, out, in, 1.0F, rows, cols);
  if (!launched)
    return launched;

  fmt::print("device {}, compute capability {}: launched kernel {}\n", device.ordinal,
             kiln::to_string(device.capability), kernel->key().substr(0, 12));
  return {};
}

}  // namespace

int main() {
  auto service = kiln::Service::open();
  if (!service) {
    fmt::print(stderr, "{}\n", service.error().message);
    return 1;
  }
  for (const kiln::Device& device : service->devices()) {
    if (const auto done = run_on(*service, device); !done) {
      fmt::print(stderr, "{}\n", done.error().message);
      return 1;
    }
  }
  const kiln::Statistics statistics = service->statistics();
  fmt::print("{} devices: {} compiled, {} found in the cache\n",
             service->devices().size(), statistics.compiled, statistics.disk_hits);
  return 0;
}
