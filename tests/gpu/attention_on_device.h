// Attention on a device, for the calls of tests/integration/attention_kernel: within an
// OperationsOnDevice, with the tensors copied there before and back afterwards. Kiln's
// own kernels, launched as the library launches them, unless a scope says otherwise.

#pragma once

#include "kiln/service.h"

namespace kiln::gpu_test {

/// While it lives, what a call starts is captured, and runs as a CUDA graph. One at a
/// time. Thread safety: none.
class AttentionInGraphs {
 public:
  AttentionInGraphs();
  AttentionInGraphs(const AttentionInGraphs&) = delete;
  AttentionInGraphs& operator=(const AttentionInGraphs&) = delete;
  ~AttentionInGraphs();
};

/// While it lives, calls are those of a program, prepare() and attention_forward() or
/// attention_backward(), to a service for each pass; which backend runs is the
/// service's affair. One at a time. Thread safety: none.
class AttentionByServices {
 public:
  AttentionByServices(Service& forward, Service& backward);
  AttentionByServices(const AttentionByServices&) = delete;
  AttentionByServices& operator=(const AttentionByServices&) = delete;
  ~AttentionByServices();
};

}  // namespace kiln::gpu_test
