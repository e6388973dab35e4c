"""Liger: the autograd functions of liger_kernel.ops, where Kiln has the operation. All
of its modules, losses and patches call their apply(). Liger computes in place, Kiln
never does: ``in_place`` changes nothing. What Kiln has not is left to Liger, with one
warning."""

from __future__ import annotations

import functools
import inspect
import os

import torch

from .. import errors, ops
from ..ops import _cross_entropy, _rope
from ._own_path import OwnPath

# (casting_mode, offset): what kiln.ops.rms_norm calls it.
_CASTINGS = {("llama", 0.0): "llama", ("gemma", 1.0): "gemma", ("none", 0.0): "none"}
# Liger's operations that have several implementations.
_CHOSEN = {
    *("rms_norm", "fused_add_rms_norm", "layer_norm"),
    *("rope", "swiglu", "geglu", "cross_entropy"),
}


def resolve_impl(op_name, requested=None, device=None):
    """The implementation that calls what Kiln replaces, unless the program or its
    environment names one."""
    from liger_kernel.backends import get_impl, registry

    names = ("LIGER_KERNEL_IMPL", "LIGER_KERNEL_BACKEND")
    is_named = requested or get_impl() or any(each.startswith(names) for each in os.environ)
    ours = registry.get_registered(op_name, "nvidia-triton")
    if is_named or ours is None or op_name not in _CHOSEN:
        raise OwnPath
    return ours


def _without_autocast(function):
    """Liger's functions take tensors as they are, and gather those of a DTensor."""

    @functools.wraps(function)
    def call(*args):
        if any(hasattr(each, "full_tensor") for each in args):
            raise errors.Unavailable("kiln takes no DTensor")
        with torch.autocast(args[0].device.type, enabled=False):
            return function(*args)

    return call


def _casting(weight, offset, casting_mode):
    casting = _CASTINGS.get((casting_mode, float(offset)))
    if weight is None and casting is not None:
        return "none"
    if casting is None:
        raise errors.Unavailable(
            f"casting_mode {casting_mode!r} with an offset of {offset}"
        )
    return casting


@_without_autocast
def rms_norm(X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None):
    return ops.rms_norm(X, W, eps, casting=_casting(W, offset, casting_mode))


@_without_autocast
def fused_add_rms_norm(X, R, W, eps, offset=0.0, casting_mode="llama", in_place=False):
    casting = _casting(W, offset, casting_mode)
    return ops.rms_norm(X, W, eps, residual=R, casting=casting)


@_without_autocast
def layer_norm(X, W, B, eps):
    return ops.layer_norm(X, W, B, eps)


@_without_autocast
def rope(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
    """q, k: [batch, heads, sequence, dim]; cos, sin: [1 or batch, sequence, dim], or
    without the batch."""
    if rotary_dim not in (None, cos.shape[-1]):
        raise errors.Unavailable("kiln has no tables of half the rotated dimensions")
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    rotated = (cos.detach(), sin.detach(), None, cos.shape[-1], "half", "bhsd")
    return _rope.rope_fwd(q, k, *rotated)


@_without_autocast
def swiglu(a, b, gate_multiplier=1.0, down_multiplier=1.0):
    if (gate_multiplier, down_multiplier) != (1.0, 1.0):
        raise errors.Unavailable("kiln has no multipliers of SwiGLU")
    return ops.swiglu(a, linear=b)


@_without_autocast
def packed_swiglu(y, in_place=False):
    return ops.swiglu(y)


@_without_autocast
def geglu(a, b):
    return ops.geglu(a, linear=b, approximate="tanh")


@_without_autocast
def relu_squared(X):
    return ops.squared_relu(X)


@functools.cache
def _results():
    """How many results the installed version's loss has: the loss, then what Kiln has
    not."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    names = inspect.signature(LigerCrossEntropyFunction.forward).parameters
    wanted = "return_z_loss", "return_token_accuracy", "return_predicted_tokens"
    return 1 + sum(each in names for each in wanted)


@_without_autocast
def cross_entropy(
    _input,
    target,
    weight=None,
    ignore_index=-100,
    lse_square_scale=0.0,
    label_smoothing=0.0,
    reduction="mean",
    softcap=None,
    return_z_loss=False,
    return_token_accuracy=False,
    return_predicted_tokens=False,
):
    if (
        weight is not None
        or softcap is not None
        or lse_square_scale
        or return_z_loss
        or return_token_accuracy
        or return_predicted_tokens
    ):
        raise errors.Unavailable(
            "kiln has neither weights, softcap, z-loss, accuracy nor predicted tokens"
        )
    if reduction != "mean":
        options = (ignore_index, label_smoothing, reduction)
        loss = ops.cross_entropy(_input, target, *options)
    else:
        options = (ignore_index, float(label_smoothing))
        losses, _ = _cross_entropy.cross_entropy_fwd(_input, target, *options)
        # 0 if all are ignored, where torch gives nan.
        count = (target != ignore_index).sum().clamp(min=1)
        loss = (losses.sum() / count).to(_input.dtype)
    return (loss, *[None] * (_results() - 1))
