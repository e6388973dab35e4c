"""Softmax of attention scores: kiln/ops/softmax.h."""

from __future__ import annotations

import torch

from .._checks import SOFTMAX_MASKS, check_no_axis, missing_dimensions
from . import _inputs
from ._define import Operation
from ._launch import dense, like
from ._types import Bool, Tensor

_NO_MASK, _MASK, _CAUSAL = map(SOFTMAX_MASKS.get, ("none", "bytes", "causal"))
_MASKED_ROWS = {"zero": False, "uniform": True}


def softmax(
    x: Tensor,
    scale: float = 1.0,
    mask: Bool | None = None,
    causal: bool = False,
    masked_row: str = "zero",
) -> torch.Tensor:
    """softmax(scale * x) over the last dimension, in one pass over x.

    mask: bool, broadcastable to x; True leaves an element out, as in Megatron-LM and
      Apex (and not as in scaled_dot_product_attention()).
    causal: of the last two dimensions [queries, keys], leaves out key j of query i where
      j > i + keys - queries.
    masked_row: of a row that is left out wholly, by the mask and causal, each element
      is 0 with "zero" and 1 / keys with "uniform". torch gives nan.

    An element that is left out is 0. Of a row that is "uniform" the gradient is that of
    a softmax: scale * y * (dy - mean(dy)).
    The second argument is no dimension: an int that may be one is refused.
    A row that does not begin at a multiple of 16 bytes may have other roundings.
    Under autocast: float32.
    """
    if _inputs.may_autocast():
        (x,) = _inputs.as_float32(x)
    if type(scale) is not float:
        _inputs.only_tensors(x=x)
        check_no_axis(scale, x.dim(), mask is None and not causal)
        scale = _inputs.number("scale", scale)
    if causal is not False and causal is not True:
        causal = _inputs.flag("causal", causal)
    uniform = _inputs.choice("masked_row", masked_row, _MASKED_ROWS)
    if mask is not None:
        mask = _checked_mask(mask, x)
    # The kernel of the triangle takes no mask, and knows no masked_row.
    if causal and (mask is not None or uniform):
        _inputs.only_tensors(x=x)
        queries, keys = _sizes(x)
        later = torch.ones(queries, keys, dtype=torch.bool, device=x.device)
        later = later.triu(keys - queries + 1)
        mask = later if mask is None else mask.bool() | later
        causal = False
    return softmax_fwd(x, scale, mask, causal, uniform and mask is not None)


def _sizes(x):
    return (x.shape[-2] if x.dim() > 1 else 1), (x.shape[-1] if x.dim() > 0 else 1)


def _checked_mask(mask, x):
    _inputs.only_tensors(x=x, mask=mask)
    if mask.dtype not in (torch.bool, torch.uint8):
        _inputs.refuse(
            f"mask is {mask.dtype}: it is bool or uint8, and leaves out where it is True; "
            "add other masks to x"
        )
    missing_dimensions("mask", mask.shape, x.shape)
    return mask


def _masks(mask, x):
    """The mask as [masks, 1, queries, keys], each for equally many matrices of x. The
    last of x's leading dimensions, in which all share a mask, do not count."""
    mask = mask[(None,) * (max(x.dim(), 2) - mask.dim())]
    *lead, queries, keys = (*x.shape[:-2], *_sizes(x))
    shared = len(lead)
    while shared > 0 and mask.shape[shared - 1] == 1:
        shared -= 1
    mask = mask.expand(*lead[:shared], *mask.shape[shared:-2], queries, keys)
    return dense("softmax.mask", mask).view(-1, 1, queries, keys)


def _masked(x, mask, causal):
    kind = _kind(mask, causal)
    return (None if mask is None else _masks(mask, x)), kind


def _kind(mask, causal):
    return _CAUSAL if causal else _NO_MASK if mask is None else _MASK


def _save(ctx, inputs, output):
    _, ctx.scale, mask, causal, _ = inputs
    ctx.kind = _kind(mask, causal)
    ctx.save_for_backward(output)


def _gradient(ctx, dy):
    (y,) = ctx.saved_tensors
    return softmax_fwd.gradients(x=softmax_bwd(dy, y, ctx.scale, ctx.kind))


softmax_fwd = Operation(
    "softmax_fwd(Tensor x, float scale, Tensor? mask, bool causal, bool masked_row)"
    " -> (Tensor y)",
    outputs=lambda x, *_: like(x),
    launch="softmax_forward",
    changes=[(_masked, ("mask_bytes", "mask"))],
    own=("causal",),
    save=_save,
    backward=_gradient,
)
softmax_bwd = Operation(
    "softmax_bwd(Tensor dy, Tensor y, float scale, int mask) -> (Tensor dx)",
    outputs=lambda dy, y, *_: like(y),
    launch="softmax_backward",
)
