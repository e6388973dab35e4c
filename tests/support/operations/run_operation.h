// An operation on a problem's tensors, run where the program's tests run: as its plan
// on this CPU (tests/support/kernels, tests/integration/ptx), or through a service on a
// device (tests/gpu). So that one problem, with its reference and its bounds, tests
// both.

#pragma once

#include <variant>

#include "kiln/device.h"
#include "kiln/geometry.h"
#include "kiln/ops/activation.h"
#include "kiln/ops/cross_entropy.h"
#include "kiln/ops/norm.h"
#include "kiln/ops/rope.h"
#include "kiln/ops/softmax.h"
#include "kiln/result.h"
#include "ops/plan.h"
#include "tests/support/kernels/order.h"

namespace kiln::test {

using Operation =
    std::variant<ops::RopeForward, ops::RopeBackward, ops::LayerNormForward,
                 ops::LayerNormBackward, ops::RmsNormForward, ops::RmsNormBackward,
                 ops::ActivationForward, ops::ActivationBackward, ops::GluForward,
                 ops::GluBackward, ops::CrossEntropy, ops::CrossEntropyForward,
                 ops::CrossEntropyBackward, ops::SoftmaxForward, ops::SoftmaxBackward>;

/// What a test chooses on the CPU. A device is what it is, and takes none of it.
struct Schedule {
  kiln_cpu::Order order = kiln_cpu::Order::kAscending;
  int multiprocessors = 4;
  ComputeCapability capability{9, 0};
  /// Of every launch, no more of an extent than this.
  LaunchArguments most{};
  bool checks_pointers = true;  // as operations do
  /// Once more as the last rows of tensors of over 2^31 elements: the results must be
  /// the same (kernels/large_tensors.h).
  bool in_large_tensors_too = false;
};

/// What the operation launches on the device, with the extents that are chosen. Errors:
/// those of the operation.
[[nodiscard]] Result<ops::Launches> plan_operation(const Operation& operation,
                                                   const Device& device,
                                                   const Schedule& schedule);

/// What operations are run on, or planned for.
[[nodiscard]] Device operations_device(const Schedule& schedule);

/// Runs it to its end. Its pointers lead into GuardedMemory: what is writable there has
/// the results, and nothing else can have changed without a failure of the test.
/// Errors: those of the operation.
[[nodiscard]] Result<void> run_operation(const Operation& operation,
                                         const Schedule& schedule = {});

}  // namespace kiln::test
