"""Kiln's operations for JAX: by custom calls of XLA, on CUDA devices.

Arrays are float16, bfloat16 or float32. An operation works under jax.jit, jax.vmap,
jax.shard_map and jax.grad, and can be differentiated once, in reverse mode. It runs in
XLA's stream, on the device that XLA runs the program on, with a kernel for that device;
no program is bound to one.

A program builds or loads its kernels when it is first run on a device; kiln.warm()
builds them before. XLA reports an error of a run as jax.errors.JaxRuntimeError, with
Kiln's class and message; what is refused while JAX traces is kiln.InvalidArgument.
"""

from ._attention import dot_product_attention
from ._norm import rms_norm
from ._rope import rope
from ._softmax import softmax

__all__ = ["dot_product_attention", "rms_norm", "rope", "softmax"]
