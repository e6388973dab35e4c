// Which of Kiln's own attention kernels runs a problem on a device. templates/attention
// has the kernels.

#pragma once

#include <string>

#include "attention/problem.h"
#include "kiln/device.h"
#include "kiln/request.h"
#include "kiln/result.h"

namespace kiln::attention {

/// What Kiln must know of a call besides its problem.
struct CallProperties {
  /// Every tensor that Kiln's kernels access as vectors begins at a multiple of 16
  /// bytes.
  bool is_aligned = true;
  bool is_aligned_for_cudnn = true;  // every tensor does
  bool has_positive_scale = true;    // the tensor core kernels require it
  friend bool operator==(const CallProperties&, const CallProperties&) = default;
};

struct KernelChoice {
  std::string kernel;  // of problem.pass: "attention_fwd"
  Parameters parameters;
  /// "tensor cores", or why the kernel computes in float.
  std::string reason;
};

/// The kernel for problem.pass, and its parameters. Kiln supports both passes of a
/// problem or neither. Errors: kUnavailable, with the reason.
[[nodiscard]] Result<KernelChoice> choose_kernel(const Problem& problem,
                                                 ComputeCapability capability,
                                                 const CallProperties& call = {});

/// Kiln's own kernel for the problem.
struct OwnKernel {
  bool supported = false;
  std::string reason;
};

/// "attention_fwd on tensor cores", or why there is none.
[[nodiscard]] OwnKernel own_kernel(const Problem& problem, ComputeCapability capability,
                                   const CallProperties& call = {});

/// The kernel for the gradient of a bias. Errors: as choose_kernel().
[[nodiscard]] Result<KernelChoice> choose_bias_kernel(const Problem& problem,
                                                      ComputeCapability capability);

}  // namespace kiln::attention
