// The operations as programs call them. Each runs its family's plan on a service. To
// add an operation, declare it in its family's header under kiln/ops/, declare its
// plan() in ops/plans.h, and add a line here.

#include "kiln/ops/activation.h"
#include "kiln/ops/cross_entropy.h"
#include "kiln/ops/norm.h"
#include "kiln/ops/rope.h"
#include "kiln/ops/softmax.h"
#include "ops/plans.h"
#include "ops/run.h"

#define KILN_OPERATION(function, Args)                                               \
  Result<void> function(Service& service, const Device& device, CUstream_st* stream, \
                        const Args& args) {                                          \
    return run_operation(service, {#function, device, stream}, args);                \
  }                                                                                  \
  Result<void> prepare(Service& service, const Device& device, const Args& args) {   \
    return prepare_operation(service, device, args);                                 \
  }

namespace kiln::ops {

KILN_OPERATION(cross_entropy, CrossEntropy)
KILN_OPERATION(cross_entropy_forward, CrossEntropyForward)
KILN_OPERATION(cross_entropy_backward, CrossEntropyBackward)
KILN_OPERATION(rope_forward, RopeForward)
KILN_OPERATION(rope_backward, RopeBackward)
KILN_OPERATION(layernorm_forward, LayerNormForward)
KILN_OPERATION(layernorm_backward, LayerNormBackward)
KILN_OPERATION(rmsnorm_forward, RmsNormForward)
KILN_OPERATION(rmsnorm_backward, RmsNormBackward)
KILN_OPERATION(activation_forward, ActivationForward)
KILN_OPERATION(activation_backward, ActivationBackward)
KILN_OPERATION(glu_forward, GluForward)
KILN_OPERATION(glu_backward, GluBackward)
KILN_OPERATION(softmax_forward, SoftmaxForward)
KILN_OPERATION(softmax_backward, SoftmaxBackward)

}  // namespace kiln::ops
