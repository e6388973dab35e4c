// A program outside Kiln's tree that uses what was installed: one kernel on each
// device, and a line that says where it came from.

#include <fmt/core.h>
#include <kiln/kiln.h>

#include <cstdint>
#include <cstdio>

int main() {
  kiln::Options options;
  options.on_event = [](const kiln::Event& event) {
    fmt::print("device {}: {}\n", event.device, kiln::to_string(event.kind));
  };
  auto service = kiln::Service::open(options);
  if (!service) {
    fmt::print(stderr, "{}\n", service.error().message);
    return 1;
  }
  for (const kiln::Device& device : service->devices()) {
    const auto kernel = service->get(
        {"scaled_softmax_fwd", {{"dtype", "bf16"}, {"max_cols", "128"}}}, device);
    if (!kernel) {
      fmt::print(stderr, "{}\n", kernel.error().message);
      return 1;
    }
    const auto geometry = kernel->geometry({{"rows", 0}, {"cols", 128}});
    const auto launched = kernel->launch(geometry, nullptr, nullptr, nullptr, 1.0F,
                                         std::int64_t{0}, std::int64_t{128});
    if (!launched) {
      fmt::print(stderr, "{}\n", launched.error().message);
      return 1;
    }
    fmt::print("device {}: launched\n", device.ordinal);
  }
  return 0;
}
