// The first use of Kiln, in full: a kernel of the catalog, fetched and launched.

#include <fmt/core.h>
#include <kiln/kiln.h>

#include <cstdint>
#include <cstdio>

int main() {
  // A program has its tensors here, in the device's memory. Without rows, nothing of
  // them is read or written.
  void* out = nullptr;
  const void* in = nullptr;
  const std::int64_t rows = 0;
  const std::int64_t cols = 1024;
  const float scale = 0.125F;
  CUstream_st* stream = nullptr;  // a CUstream; this one is the default stream

  // As it stands in README.md.
  // clang-format off
  auto service = kiln::Service::open();                                     // Result<Service>
  if (!service) { fmt::print(stderr, "{}\n", service.error().message); return 1; }
  auto device  = service->device();                                         // Result<Device>
  if (!device) { fmt::print(stderr, "{}\n", device.error().message); return 1; }
  auto kernel  = service->get({"scaled_softmax_fwd", {{"dtype", "bf16"}}}, *device);  // Result<Kernel>
  if (!kernel) { fmt::print(stderr, "{}\n", kernel.error().message); return 1; }
  auto launch  = kernel->geometry({{"rows", rows}, {"cols", cols}});
  auto done    = kernel->launch(launch, stream, out, in, scale, rows, cols);  // Result<void>
  if (!done) { fmt::print(stderr, "{}\n", done.error().message); return 1; }
  // clang-format on

  const bool is_new = service->statistics().compiled == 1;
  fmt::print("{}: {}, and launched on device {}, a {} ({})\n", kernel->name(),
             is_new ? "compiled" : "found in the cache", device->ordinal, device->name,
             kiln::to_string(device->capability));
  return 0;
}
