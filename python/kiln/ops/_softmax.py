"""Softmax of attention scores: kiln/ops/softmax.h."""

from __future__ import annotations

import math

import torch

from .._checks import missing_dimensions
from . import _inputs
from ._define import Operation
from ._launch import call, dense

_NO_MASK, _MASK, _CAUSAL = 0, 1, 2  # KILN_SOFTMAX_...


def softmax(x, scale=1.0, mask=None, causal=False):
    """softmax(scale * x) over the last dimension, in one pass over x.

    mask: bool, broadcastable to x; True leaves an element out, as in Megatron-LM and
      Apex (and not as in scaled_dot_product_attention()).
    causal: of the last two dimensions [queries, keys], leaves out key j of query i where
      j > i + keys - queries.

    An element that is left out is 0, and a row of them alone is 0: torch gives nan.
    Under autocast: float32.
    """
    (x,) = _inputs.as_float32(x)
    if mask is not None:
        mask = _checked_mask(mask, x)
        if causal:
            queries, keys = _sizes(x)
            later = torch.ones(queries, keys, dtype=torch.bool, device=x.device)
            mask = mask.bool() | later.triu(keys - queries + 1)
            causal = False
    return softmax_fwd(x, float(scale), mask, causal)


def _sizes(x):
    return (x.shape[-2] if x.dim() > 1 else 1), (x.shape[-1] if x.dim() > 0 else 1)


def _checked_mask(mask, x):
    if mask.dtype not in (torch.bool, torch.uint8):
        _inputs.refuse(
            f"mask is {mask.dtype}: it is bool or uint8, and leaves out where it is True; "
            "add other masks to x"
        )
    missing_dimensions("mask", mask.shape, x.shape)
    return mask


def _scores(x, mask):
    """The shape of x as [batch, heads, queries, keys], and the mask as [1 or batch, 1,
    queries, keys]: dimensions that share a mask are heads."""
    lead = x.shape[:-2]
    sizes = _sizes(x)
    if mask is None:
        return (1, math.prod(lead), *sizes), None
    mask = mask[(None,) * (max(x.dim(), 2) - mask.dim())]
    shared = len(lead)  # the first of the dimensions in which all share a mask
    while shared > 0 and mask.shape[shared - 1] == 1:
        shared -= 1
    mask = mask.expand(*lead[:shared], *mask.shape[shared:-2], *sizes)
    shape = (math.prod(lead[:shared]), math.prod(lead[shared:]), *sizes)
    mask = dense("softmax.mask", mask).view(shape[0], 1, *sizes)
    return shape, mask


def _like(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _forward(y, x, scale, mask, causal):
    shape, mask = _scores(x, mask)
    x = dense("softmax.x", x)
    call("softmax_forward", y.view(shape), x.view(shape), mask, scale, causal)


def _backward(dx, dy, y, scale, kind):
    shape, _ = _scores(y, None)
    dy, y = dense("softmax.dy", dy), dense("softmax.y", y)
    call(
        "softmax_backward", dx.view(shape), dy.view(shape), y.view(shape), scale, kind
    )


def _save(ctx, inputs, output):
    _, ctx.scale, mask, causal = inputs
    ctx.kind = _CAUSAL if causal else _NO_MASK if mask is None else _MASK
    ctx.save_for_backward(output)


def _gradient(ctx, dy):
    (y,) = ctx.saved_tensors
    return softmax_bwd(dy, y, ctx.scale, ctx.kind), None, None, None


softmax_fwd = Operation(
    "softmax_fwd(Tensor x, float scale, Tensor? mask, bool causal) -> Tensor",
    outputs=lambda x, *_: _like(x),
    launch=_forward,
    save=_save,
    backward=_gradient,
)
# kind: 0 no mask, 1 a mask, 2 causal.
softmax_bwd = Operation(
    "softmax_bwd(Tensor dy, Tensor y, float scale, int kind) -> Tensor",
    outputs=lambda dy, y, *_: _like(y),
    launch=_backward,
)
