"""Liger: its functional names, where Kiln has the operation. Only functions of an
installed Liger are replaced. It computes in place, Kiln never does: ``in_place``
changes nothing. What Kiln has not is left to Liger, with one warning."""

from __future__ import annotations

import functools

import torch

from .. import errors, ops
from ..ops import _cross_entropy, _rope

# (casting_mode, offset): what kiln.ops.rms_norm calls it.
_CASTINGS = {("llama", 0.0): "llama", ("gemma", 1.0): "gemma", ("none", 0.0): "none"}


def _without_autocast(function):
    """Liger's functions take tensors as they are."""

    @functools.wraps(function)
    def call(first, *args, **kwargs):
        with torch.autocast(first.device.type, enabled=False):
            return function(first, *args, **kwargs)

    return call


def _casting(weight, offset, casting_mode):
    casting = _CASTINGS.get((casting_mode, float(offset)))
    if weight is None or casting is None:
        raise errors.Unavailable(
            f"casting_mode {casting_mode!r} with an offset of {offset}, or no weight"
        )
    return casting


@_without_autocast
def liger_rms_norm(
    X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None
):
    return ops.rms_norm(X, W, eps, casting=_casting(W, offset, casting_mode))


@_without_autocast
def liger_fused_add_rms_norm(
    X, R, W, eps, offset=0.0, casting_mode="llama", in_place=True
):
    casting = _casting(W, offset, casting_mode)
    return ops.rms_norm(X, W, eps, residual=R, casting=casting)


@_without_autocast
def liger_layer_norm(X, W, B, eps):
    return ops.layer_norm(X, W, B, eps)


@_without_autocast
def liger_rope(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    """q, k: [batch, heads, sequence, dim]; cos, sin: [1 or batch, sequence, dim]."""
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    rotated = (cos.detach(), sin.detach(), None, cos.shape[-1], "half", "bhsd")
    return _rope.rope_fwd(q, k, *rotated)


@_without_autocast
def liger_swiglu(a, b):
    return ops.swiglu(a, linear=b)


@_without_autocast
def liger_geglu(a, b):
    return ops.geglu(a, linear=b, approximate="tanh")


@_without_autocast
def liger_relu_squared(x):
    return ops.squared_relu(x)


@_without_autocast
def liger_cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    return_z_loss=False,
    **others,
):
    if (
        weight is not None
        or softcap is not None
        or lse_square_scale
        or return_z_loss
        or any(others.values())
    ):
        raise errors.Unavailable("kiln has neither weights, softcap nor z-loss")
    if reduction != "mean":
        return ops.cross_entropy(
            input, target, ignore_index, label_smoothing, reduction
        )
    options = (ignore_index, float(label_smoothing))
    loss, _ = _cross_entropy.cross_entropy_fwd(input, target, *options)
    # 0 if all are ignored, where torch gives nan.
    return (loss.sum() / (target != ignore_index).sum().clamp(min=1)).to(input.dtype)
