"""kiln.prepare(), and tensors that stand for those of a later call."""

from __future__ import annotations

import difflib
import inspect

import torch

from . import ops
from ._library import library
from .errors import InvalidArgument
from .ops._launch import PREPARE, handled_by
from .ops._types import kinds_of


def prepare(op, *shapes, dtype=None, device=None, backward=True, dtypes=None, **arguments):
    """Builds or loads the kernels that a call of an operation needs, for both passes.

        kiln.prepare("rms_norm", (8192, 4096), (4096,), dtype=torch.bfloat16)
        kiln.prepare("softmax", (4, 32, 2048, 2048), dtype=torch.float16, causal=True)

    op: a function of kiln.ops, or its name.
    shapes: of its tensors, in the order of its parameters; or tensors of any device
      ("meta", too) with these shapes, strides and types. Tensors by keyword likewise.
    device: a CUDA device; None: the current one.
    backward: whether for the backward pass, too.
    dtypes: types of single tensors that differ from ``dtype``: {"weight": torch.float32}, or
      {"attn_mask": torch.bool}.

    Afterwards the call may be captured into a CUDA graph, by this thread and by that in
    which torch computes gradients.

    Blocks while it builds. Errors: those of the operation.
    """
    function = _operation(op)
    dtypes = dtypes or {}
    for of in (dtype, *dtypes.values()):
        if not isinstance(of, (torch.dtype, type(None))):
            raise InvalidArgument(f"dtype is {of!r}, and not a dtype of torch, such as torch.bfloat16")
    if unknown := set(dtypes) - set(kinds_of(function)):
        raise InvalidArgument(
            f"dtypes has {', '.join(sorted(unknown))}, and {op} takes no such tensor; it takes "
            + ", ".join(kinds_of(function))
        )
    bound = inspect.signature(function).bind(*shapes, **arguments)
    for name, kind in kinds_of(function).items():
        if name in bound.arguments:
            of = dtypes.get(name, kind.dtype or dtype)
            has_gradient = backward and kind.has_gradient
            value = bound.arguments[name]
            bound.arguments[name] = _stand_in(value, of, has_gradient, backward)
    ordinal = ordinal_of(device)
    of_threads = []  # calls whose preparation holds for one thread: cuDNN's plans

    def handler(name, values):
        getattr(library(), name)(PREPARE, ordinal, *values.values())
        if name.startswith("attention"):
            of_threads.append((name, values))

    with handled_by(handler), torch.set_grad_enabled(backward):
        outputs = function(*bound.args, **bound.kwargs)
        if backward:
            _differentiate(outputs, bound.arguments.values())
    if backward and of_threads and torch.cuda.is_available():
        calls = tuple(of_threads)
        _in_backward(
            torch.device("cuda", ordinal), lambda: [handler(*each) for each in calls]
        )


def _operation(op):
    names = [name for name in ops.__all__ if name not in ("CopyWarning", "copies")]
    name = op if isinstance(op, str) else getattr(op, "__name__", "")
    if name in names and op in (name, getattr(ops, name)):
        return getattr(ops, name)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    raise InvalidArgument(f"{op!r} is none of kiln.ops; {hint}")


class _InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run):
        ctx.run = run
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.run()
        return gradient, None


def _in_backward(device, run):
    """Calls run() in the thread in which torch computes gradients on that device. That
    of recomputed activations is the same."""
    with torch.enable_grad():
        x = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(_InBackward.apply(x, run), x)


def ordinal_of(device) -> int:
    """The CUDA ordinal of a device as torch writes it."""
    if device is None:
        return torch.cuda.current_device() if torch.cuda.is_available() else 0
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return ordinal_of(None)
    if device.type != "cuda":
        raise InvalidArgument(f"device is {device}, and not a CUDA device")
    return device.index


def stand_in(tensor, wants_gradient=False):
    """A tensor in the CPU's memory with the shape, strides and type of ``tensor``. It is
    not written, so it takes addresses, but hardly memory; int32 alone, which may say
    where sequences begin, is 0."""
    made = torch.empty_strided(
        tensor.shape,
        tensor.stride(),
        dtype=tensor.dtype,
        requires_grad=wants_gradient and tensor.requires_grad,
    )
    return made.zero_() if tensor.dtype == torch.int32 else made


def _stand_in(value, dtype, has_gradient, backward):
    if isinstance(value, torch.Tensor):
        if has_gradient:
            value = value.detach().requires_grad_(value.is_floating_point())
        return stand_in(value, backward)
    if not _is_shape(value):
        return value
    if dtype is None:
        raise InvalidArgument("dtype is missing, the type of the tensors")
    has_gradient = has_gradient and dtype.is_floating_point
    made = torch.empty(value, dtype=dtype, requires_grad=has_gradient)
    return made.zero_() if dtype == torch.int32 else made


def _is_shape(value) -> bool:
    return isinstance(value, (tuple, list)) and all(
        isinstance(size, int) for size in value
    )


def _differentiate(outputs, inputs):
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    outputs = [each for each in outputs if each is not None and each.requires_grad]
    inputs = [
        each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    if outputs and inputs:
        gradients = [torch.empty_like(each) for each in outputs]
        torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)
