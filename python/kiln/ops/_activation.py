"""Activations and gated linear units: kiln/ops/activation.h."""

from __future__ import annotations

import torch

from .._library import enumerators
from . import _inputs
from ._define import Operation
from ._launch import like
from ._types import Tensor

_KINDS, _GLU_KINDS = enumerators("activation_kind"), enumerators("glu_kind")
_GELUS = {"tanh": "tanh", "none": "erf"}  # torch's names, Kiln's names


def bias_gelu(
    x: Tensor, bias: Tensor | None, approximate: str = "tanh"
) -> torch.Tensor:
    """torch's gelu(x + bias), with a bias of the last dimension of x, or None.

    Under autocast: the type of x.
    """
    return _activation(x, bias, "gelu_" + _inputs.choice("approximate", approximate, _GELUS))


def squared_relu(x: Tensor) -> torch.Tensor:
    """max(x, 0) squared. Under autocast: the type of x."""
    return _activation(x, None, "squared_relu")


def swiglu(
    x: Tensor, bias: Tensor | None = None, linear: Tensor | None = None
) -> torch.Tensor:
    """silu(g) * l of the two halves of the last dimension of x = [g, l].

    bias: is added to x first; one for each element of [g, l].
    linear: l; then x is g alone.

    Under autocast: the type of x.
    """
    return _glu(x, bias, linear, "swiglu")


def geglu(
    x: Tensor,
    bias: Tensor | None = None,
    linear: Tensor | None = None,
    approximate: str = "tanh",
) -> torch.Tensor:
    """gelu(g) * l, with torch's forms of gelu; all else as in swiglu()."""
    kind = "geglu_" + _inputs.choice("approximate", approximate, _GELUS)
    return _glu(x, bias, linear, kind)


def _activation(x, bias, kind):
    _check(x)
    if _inputs.may_autocast():
        x, bias = _inputs.as_first(x, bias)
    return activation_fwd(x, bias, _KINDS[kind])


def _glu(x, bias, linear, kind):
    _check(x)
    if linear is None and x.shape[-1] % 2 != 0:
        _inputs.refuse(
            f"the last dimension of x is {x.shape[-1]}: it has two halves, or linear is "
            "given"
        )
    if _inputs.may_autocast():
        x, bias, linear = _inputs.as_first(x, bias, linear)
    return glu_fwd(x, linear, bias, _GLU_KINDS[kind])


def _check(x):
    try:
        dims = x.dim()
    except AttributeError:
        _inputs.only_tensors(x=x)
        raise
    if dims == 0:
        _inputs.refuse("x has no dimension")


def _gradient_of(tensor, x):
    """Of an optional input; without elements, if there is none."""
    return x.new_empty(0) if tensor is None else like(tensor)


# ---- Activations


def _save(ctx, inputs, output):
    x, bias, ctx.kind = inputs
    ctx.save_for_backward(x, bias)


def _gradient(ctx, dy):
    x, bias = ctx.saved_tensors
    dx, dbias = activation_bwd(dy, x, bias, ctx.kind)
    return dx, None if bias is None else dbias, None


# kind: KILN_ACTIVATION_KIND_...
activation_fwd = Operation(
    "activation_fwd(Tensor x, Tensor? bias, int kind) -> (Tensor y)",
    outputs=lambda x, *_: like(x),
    launch="activation_forward",
    save=_save,
    backward=_gradient,
)
activation_bwd = Operation(
    "activation_bwd(Tensor dy, Tensor x, Tensor? bias, int kind)"
    " -> (Tensor dx, Tensor dbias)",
    outputs=lambda dy, x, bias, kind: (like(x), _gradient_of(bias, x)),
    launch="activation_backward",
)

# ---- Gated linear units

# Of GluKind::kClampedSwiglu, and of rows with a factor each.
_UNUSED = ("alpha", "limit", "offset", "weight")


def _glu_output(x, linear, bias, kind):
    last = x.shape[-1] if linear is not None else x.shape[-1] // 2
    return x.new_empty(*x.shape[:-1], last)


def _glu_save(ctx, inputs, output):
    x, linear, bias, ctx.kind = inputs
    ctx.save_for_backward(x, linear, bias)


def _glu_gradient(ctx, dy):
    x, linear, bias = ctx.saved_tensors
    dx, dlinear, dbias = glu_bwd(dy, x, linear, bias, ctx.kind)
    return dx, None if linear is None else dlinear, None if bias is None else dbias, None


# kind: KILN_GLU_KIND_...
glu_fwd = Operation(
    "glu_fwd(Tensor x, Tensor? linear, Tensor? bias, int kind) -> (Tensor y)",
    outputs=_glu_output,
    launch="glu_forward",
    save=_glu_save,
    backward=_glu_gradient,
    unused=_UNUSED,
)
glu_bwd = Operation(
    "glu_bwd(Tensor dy, Tensor x, Tensor? linear, Tensor? bias, int kind)"
    " -> (Tensor dx, Tensor dlinear, Tensor dbias)",
    outputs=lambda dy, x, linear, bias, kind: (
        like(x),
        _gradient_of(linear, x),
        _gradient_of(bias, x),
    ),
    launch="glu_backward",
    unused=("dweight", *_UNUSED),
)
