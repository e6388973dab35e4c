// What a run of a plan is handed, checked before anything is put on a stream: what
// cuDNN would answer with a bare status, or not at all, is named here.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "device/primary_context.h"
#include "kiln/result.h"

namespace kiln::attention {

/// Device memory; kScale alone is the host's.
struct TensorPointer {
  TensorRole role;
  void* pointer;
};

/// What a workspace must be aligned to: as every allocation of CUDA's is.
inline constexpr std::size_t kWorkspaceAlignment = 256;

struct WorkspaceMemory {
  void* pointer = nullptr;
  std::size_t bytes = 0;
};

/// The pointers of the plan's tensors, in its order. Each must be given once, and no
/// other; be memory that work of `context` can use; and be aligned to 16 bytes, as the
/// plan was built for, or, where it is of numbers, to one of them. Errors, beginning
/// with `on` and naming the tensor: kInvalidArgument; kDevice.
[[nodiscard]] Result<std::vector<void*>> arrange_tensors(
    const Plan& plan, const device::PrimaryContext& context,
    std::span<const TensorPointer> tensors, std::string_view on);

/// Errors: kInvalidArgument (too small, not aligned, no memory of that device);
/// kDevice.
[[nodiscard]] Result<void> check_workspace(const Plan& plan,
                                           const device::PrimaryContext& context,
                                           WorkspaceMemory workspace,
                                           std::string_view on);

}  // namespace kiln::attention
