"""What the public functions do to their arguments: types under autocast, refusals.

Under torch.autocast an operation computes in the type in which torch runs its own:

    float32               softmax, layer_norm, rms_norm, cross_entropy
    autocast's type       scaled_dot_product_attention, varlen_attention
    that of the 1st input rope, bias_gelu, swiglu, geglu, squared_relu

Tensors of float64 and of integers are never cast. torch.ops.kiln.* cast nothing.
"""

from __future__ import annotations

import torch

from .._checks import choice, refuse  # noqa: F401  for the operations

_CASTABLE = (torch.float16, torch.bfloat16, torch.float32)


# Whether it is on for any device. Ask it before the following: no call takes less time.
may_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def _is_autocast(tensor) -> bool:
    kind = tensor.device.type
    return kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind)


def _cast(tensors, dtype):
    return [
        t.to(dtype) if t is not None and t.dtype in _CASTABLE else t for t in tensors
    ]


def as_float32(*tensors):
    """Under autocast, the tensors as float32; some may be None."""
    if not _is_autocast(tensors[0]):
        return tensors
    return _cast(tensors, torch.float32)


def as_autocast(*tensors):
    """Under autocast, the tensors in its type; some may be None."""
    if not _is_autocast(tensors[0]):
        return tensors
    return _cast(tensors, torch.get_autocast_dtype(tensors[0].device.type))


def as_first(*tensors):
    """Under autocast, the tensors in the type of the first; some may be None."""
    if not _is_autocast(tensors[0]):
        return tensors
    return _cast(tensors, tensors[0].dtype)
