"""What the public functions do to their arguments: types under autocast, refusals.

Under torch.autocast an operation computes in the type in which torch runs its own:

    float32               softmax, layer_norm, rms_norm, cross_entropy
    autocast's type       scaled_dot_product_attention, varlen_attention
    that of the 1st input rope, bias_gelu, swiglu, geglu, squared_relu

Tensors of float64 and of integers are never cast. torch.ops.kiln.* cast nothing.
"""

from __future__ import annotations

import operator

import torch

from .._checks import choice, refuse  # noqa: F401  for the operations

_CASTABLE = (torch.float16, torch.bfloat16, torch.float32)


# Whether it is on for any device. Ask it before the following: no call takes less time.
may_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


# What follows is asked only after another kind of value was met: a call takes microseconds.


def _is_tensor(value) -> bool:
    return isinstance(value, torch.Tensor) or hasattr(value, "__torch_function__")


def refuse_no_tensor(name: str, value):
    refuse(f"{name} is {value!r:.80}, and not a tensor of torch")


def only_tensors(optional=(), **inputs) -> None:
    """Refuses the first that is none; those that are ``optional`` may be None."""
    for name, value in inputs.items():
        if not _is_tensor(value) and (value is not None or name not in optional):
            refuse_no_tensor(name, value)


def flag(name: str, value) -> bool:
    """Of True and False, those of numpy, and 1 and 0."""
    if isinstance(value, int) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if isinstance(value, torch.Tensor):
        refuse(f"{name} is a tensor: it is True or False, such as bool(tensor)")
    refuse(f"{name} is {value!r:.80}: it is True or False")


def integer(name: str, value):
    """Of anything that counts as one, such as numpy's."""
    if isinstance(value, torch.SymInt):
        return value
    try:
        return operator.index(value)
    except TypeError:
        refuse(f"{name} is {value!r:.80}, and not an integer")


def number(name: str, value) -> float:
    if isinstance(value, torch.SymFloat):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        refuse(f"{name} is {value!r:.80}, and not a number")


def _is_autocast(tensors) -> bool:
    """False also if one is no tensor: the operation refuses that by its name."""
    if not all(t is None or isinstance(t, torch.Tensor) for t in tensors):
        return False
    if tensors[0] is None:
        return False
    kind = tensors[0].device.type
    return kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind)


def _cast(tensors, dtype):
    return [
        t.to(dtype) if t is not None and t.dtype in _CASTABLE else t for t in tensors
    ]


def as_float32(*tensors):
    """Under autocast, the tensors as float32; some may be None."""
    if not _is_autocast(tensors):
        return tensors
    return _cast(tensors, torch.float32)


def as_autocast(*tensors):
    """Under autocast, the tensors in its type; some may be None."""
    if not _is_autocast(tensors):
        return tensors
    return _cast(tensors, torch.get_autocast_dtype(tensors[0].device.type))


def as_first(*tensors):
    """Under autocast, the tensors in the type of the first; some may be None."""
    if not _is_autocast(tensors):
        return tensors
    return _cast(tensors, tensors[0].dtype)
