// Attention that always runs: by cuDNN where it can, else by Kiln's own kernel.

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
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  float* stats = nullptr;
  void* workspace = nullptr;
  CUstream_st* stream = nullptr;  // a CUstream; this one is the default stream
  auto service = kiln::Service::open();
  if (!service)
    return fail(service.error());
  const auto device = service->device();
  if (!device)
    return fail(device.error());

  // As it stands in docs/attention.md, but for the lines that look at what comes of it.
  // clang-format off
  kiln::ops::AttentionProblem problem{.dtype = kiln::ops::DType::kBf16, .batch = 4, .heads = 32,
                                      .kv_heads = 8, .sq = 4096, .skv = 4096, .dqk = 128, .dv = 128,
                                      .mask = kiln::ops::AttentionMask::kCausal};
  set_strides(problem);
  // Result: who runs it, why, and its workspace
  auto choice = kiln::ops::prepare_attention_forward(*service, *device, problem, {.stats = true});
  if (!choice) { return fail(choice.error()); }
  // void* workspace: of choice->workspace_bytes, at a multiple of 256 bytes
  auto done = kiln::ops::attention_forward(*service, *device, stream, problem,
                                {.q = q, .k = k, .v = v, .o = o, .stats = stats,
                                 .workspace = workspace, .workspace_bytes = choice->workspace_bytes},
                                {.stats = true});
  // clang-format on
  const bool is_kilns = choice->backend == kiln::ops::AttentionBackend::kKiln;
  fmt::print("{} runs it, for {}, with a workspace of {} bytes\n",
             is_kilns ? "Kiln's own kernel" : "cuDNN", choice->reason,
             choice->workspace_bytes);
  if (!done && o != nullptr)  // here there are no tensors, and it says so
    return fail(done.error());
  return 0;
}
