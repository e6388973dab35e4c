// Checks the arguments of a run before anything is enqueued, and names what is wrong.
// cuDNN would return a bare status, or not notice.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "device/primary_context.h"
#include "kiln/result.h"

namespace kiln::attention {

/// Device memory, except kScale, which is in host memory.
struct TensorPointer {
  TensorRole role;
  void* pointer;
};

/// The alignment that a workspace must have, in bytes: that of every CUDA allocation.
inline constexpr std::size_t kWorkspaceAlignment = 256;

struct WorkspaceMemory {
  void* pointer = nullptr;
  std::size_t bytes = 0;
};

/// The pointers of the plan's tensors, in the plan's order. Each tensor must be given
/// exactly once, and no other. Its memory must be usable by work of `context`. It must
/// be aligned to 16 bytes, as the plan was built for; lengths, offsets, seeds and the
/// scale to one element. Errors, beginning with `on` and naming the tensor:
/// kInvalidArgument; kDevice.
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
