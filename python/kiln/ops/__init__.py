"""Operations on torch's tensors, with gradients, for eager code and torch.compile.

Tensors are float16, bfloat16 or float32, on any CUDA device of the process, whichever is
current; an operation runs on its current stream, and computes in float32. Results are new
tensors. An operation can be differentiated once, also by torch.func.grad, vjp and jacrev;
under torch.vmap it is called once for each element of the batch. There is no forward-mode
derivative. Each is in torch.ops.kiln, too, in parts: for example softmax_fwd and
softmax_bwd.

A tensor with strides that an operation cannot take is copied: copies() counts that, and
the first such copy warns (CopyWarning). The first call of an operation with new types and
sizes may build its kernel; kiln.prepare() does so before. In a capture into a CUDA graph
only a call whose kernels are loaded, by kiln.prepare() or an earlier call, is not refused;
of attention one that was prepared, or run once. What cannot be is refused with
kiln.InvalidArgument, with the reason.
"""

import sys

from ._activation import bias_gelu, geglu, squared_relu, swiglu
from ._attention import scaled_dot_product_attention, varlen_attention
from ._cross_entropy import cross_entropy
from ._define import _register_cpu
from ._launch import CopyWarning, copies
from ._norm import layer_norm, rms_norm
from ._rope import rope
from ._softmax import softmax

__all__ = [
    "CopyWarning",
    "bias_gelu",
    "copies",
    "cross_entropy",
    "geglu",
    "layer_norm",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "softmax",
    "squared_relu",
    "swiglu",
    "varlen_attention",
]

# A simulated device has the CPU's memory; it may be in use before torch is loaded.
_testing = sys.modules.get("kiln.testing")
if _testing is not None and _testing.is_simulated():
    _register_cpu()
