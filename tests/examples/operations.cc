// An operation: softmax of attention scores, as a training step calls it.

#include <fmt/core.h>
#include <kiln/kiln.h>

#include <cstdio>

namespace {

int fail(const kiln::Error& error) {
  fmt::print(stderr, "{}\n", error.message);
  return 1;
}

}  // namespace

int main() {
  // A program has its tensors here, in the device's memory.
  void* y = nullptr;
  const void* x = nullptr;
  CUstream_st* stream = nullptr;  // a CUstream; this one is the default stream
  auto service = kiln::Service::open();
  if (!service)
    return fail(service.error());
  const auto device = service->device();
  if (!device)
    return fail(device.error());

  // As it stands in docs/operations.md, but for the lines that look at the results.
  // clang-format off
  kiln::ops::SoftmaxForward args{.dtype = kiln::ops::DType::kBf16, .y = y, .x = x,
                                 .batch = 4, .heads = 32, .sq = 2048, .skv = 2048,
                                 .scale = 0.088F, .mask = kiln::ops::SoftmaxMask::kCausal};
  auto ready = kiln::ops::prepare(*service, *device, args);  // before a capture: built and loaded
  if (!ready) { return fail(ready.error()); }
  args.batch = 0;  // without sequences nothing of the tensors is read or written
  auto done  = kiln::ops::softmax_forward(*service, *device, stream, args);  // Result<void>
  // clang-format on
  if (!done)
    return fail(done.error());
  const bool is_new = service->statistics().compiled == 1;
  fmt::print("softmax_forward is {}, for device {}\n",
             is_new ? "compiled" : "found in the cache", device->ordinal);
  return 0;
}
