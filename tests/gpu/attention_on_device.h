// Attention's plan on a device, for the calls of tests/integration/attention_kernel:
// within an OperationsOnDevice, with the tensors copied there before and back
// afterwards.

#pragma once

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

}  // namespace kiln::gpu_test
