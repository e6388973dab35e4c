"""Apex: the norms and the cross-entropy loss. Its softmax and rope are Megatron-LM's.

``fused_layer_norm_cuda``: results are lists [y, mean, invvar], [dx, dweight, dbias]; a
backward pass without weights returns dx alone. ``..._mixed_dtypes`` and ``ln_fwd`` give
y the type of the weight. With ``memory_efficient`` the backward functions get y for x:
where the weight is 0, its gradient is 0, and that of x lacks a term.
"""

from __future__ import annotations

import importlib

import torch

from .._checks import CASTINGS
from ..ops import _cross_entropy, _inputs, _norm
from . import _unfused
from ._own_path import unfused

_NO_CASTING = CASTINGS["none"]  # rounded once
# ln_bwd() does not get eps.
_LN_EPS = 1e-5


def _rows(x, shape, weight):
    """x, whose last dimensions make a row; without a weight as one dimension."""
    shape = torch.Size(shape)
    if not shape or x.shape[x.dim() - len(shape) :] != shape:
        _inputs.refuse(
            f"the normalized shape is {list(shape)}, and x has {list(x.shape)}"
        )
    return x if weight is not None else x.flatten(-len(shape))


def _one_type(*tensors):
    """As they are, if they have one type; else as float32. Some may be None."""
    if len({each.dtype for each in tensors if each is not None}) == 1:
        return tensors
    return [None if each is None else each.float() for each in tensors]


def _norm_forward(x, shape, eps, has_mean, weight=None, bias=None):
    """[y, mean, invvar]; without a mean, that of an RMSNorm."""
    dtype, rows = x.dtype if weight is None else weight.dtype, _rows(x, shape, weight)
    if has_mean:
        tensors = _one_type(rows, weight, bias)
        y, *statistics = _norm.layer_norm_fwd(*tensors, float(eps), False)
    else:
        tensors = _one_type(rows, weight)
        y, *statistics = _norm.rms_norm_fwd(*tensors, float(eps), _NO_CASTING, False)
    return [y.view(x.shape).to(dtype), *statistics]


def _norm_gradients(
    dy, rstd, x, shape, eps, from_y, has_mean, mean=None, weight=None, bias=None
):
    """[dx, dweight, dbias], as far as there are weights. x is y if ``from_y``."""
    of_weight, dtype = (weight is not None), getattr(weight, "dtype", None)
    dy, rows = (_rows(each, shape, weight) for each in (dy, x))
    bias, mean = (bias, None) if from_y else (None, mean)  # with y goes the bias
    dy, rows, weight, bias = _one_type(dy, rows, weight, bias)
    tensors = (dy, *((None, rows) if from_y else (rows, None)), weight)
    if has_mean:
        options = (of_weight, from_y, of_weight)
        made = _norm.layer_norm_bwd(*tensors, bias, mean, rstd, None, *options)
    else:
        options = (_NO_CASTING, from_y, of_weight)
        made = _norm.rms_norm_bwd(*tensors, rstd, None, *options)
    dx, *others = made
    others = [each.to(dtype) for each in others] if of_weight else []
    return [dx.view(x.shape).to(x.dtype), *others]


# The functions of fused_layer_norm_cuda and of fast_layer_norm, and what they take.
_NORMS = {
    "forward": "x shape eps",
    "forward_affine": "x shape weight bias eps",
    "forward_affine_mixed_dtypes": "x shape weight bias eps",
    "rms_forward": "x shape eps",
    "rms_forward_affine": "x shape weight eps",
    "rms_forward_affine_mixed_dtypes": "x shape weight eps",
    "backward": "dy mean rstd x shape eps from_y",
    "backward_affine": "dy mean rstd x shape weight bias eps from_y",
    "rms_backward": "dy rstd x shape eps from_y",
    "rms_backward_affine": "dy rstd x shape weight eps from_y",
    "ln_fwd": "x weight bias eps",
    "ln_bwd": "dy x mean rstd weight bias from_y",
}


def _norm_of(name, compute):
    names = _NORMS[name].split()

    def function(*arguments):
        if len(arguments) != len(names):
            raise TypeError(f"{name} takes {', '.join(names)}")
        given = dict(zip(names, arguments))
        if name.startswith("ln_"):
            given = {"shape": given["weight"].shape, "eps": _LN_EPS, **given}
        made = compute(**given, has_mean=not name.startswith("rms_"))
        if name == "ln_bwd":  # the original's partial sums follow, which its caller drops
            weight = given["weight"]
            return [*made, *(weight.new_empty((0, weight.numel())) for _ in range(2))]
        return made[0] if name.endswith("backward") else made

    return function


for _name, _parameters in _NORMS.items():
    if "dy" in _parameters:
        _function, _formula = _norm_gradients, _unfused.norm_gradients
    else:
        _function, _formula = _norm_forward, _unfused.norm
    globals()[_name] = unfused(_norm_of(_name, _formula))(_norm_of(_name, _function))


# ---- apex.normalization.fused_layer_norm, where there is no Apex


def _extension():
    """With the framework's own path where Kiln cannot compute."""
    return importlib.import_module("fused_layer_norm_cuda")


class FusedLayerNormAffineFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, input, weight, bias, normalized_shape, eps, memory_efficient=False
    ):
        input, weight, bias = (each.contiguous() for each in (input, weight, bias))
        y, mean, invvar = _extension().forward_affine(
            input, normalized_shape, weight, bias, eps
        )
        ctx.rest = (normalized_shape, eps, memory_efficient)
        kept = (y, None) if memory_efficient else (input, mean)
        ctx.save_for_backward(*kept, invvar, weight, bias)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x_or_y, mean, invvar, weight, bias = ctx.saved_tensors
        shape, eps, from_y = ctx.rest
        gradients = _extension().backward_affine(
            *(grad_output.contiguous(), mean, invvar, x_or_y, shape, weight, bias),
            *(eps, from_y),
        )
        return *gradients, None, None, None


class FusedRMSNormAffineFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, normalized_shape, eps, memory_efficient=False):
        input, weight = input.contiguous(), weight.contiguous()
        y, invvar = _extension().rms_forward_affine(
            input, normalized_shape, weight, eps
        )
        ctx.rest = (normalized_shape, eps, memory_efficient)
        ctx.save_for_backward(y if memory_efficient else input, invvar, weight)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x_or_y, invvar, weight = ctx.saved_tensors
        shape, eps, from_y = ctx.rest
        gradients = _extension().rms_backward_affine(
            grad_output.contiguous(), invvar, x_or_y, shape, weight, eps, from_y
        )
        return *gradients, None, None, None


# ---- xentropy_cuda, of [rows, classes]. A label of -100 counts nothing: the original
# leaves that to its caller, which sets such losses and their gradients to 0.

_NO_LABEL = -100


@unfused(_unfused.xentropy)
def xentropy_forward(input, labels, smoothing, half_to_float):
    """[losses, log(sum(exp(row)))]: float32, and the type of the input, or float32 if
    half_to_float."""
    losses, saved = _cross_entropy.cross_entropy_fwd(
        input, labels, _NO_LABEL, float(smoothing)
    )
    lse = saved[:, 0] + saved[:, 1].log()
    return [losses, lse if half_to_float else lse.to(input.dtype)]


@unfused(_unfused.xentropy_gradient)
def xentropy_backward(grad_loss, logits, max_log_sum_exp, labels, smoothing):
    if max_log_sum_exp.dtype == torch.float32:
        saved = torch.stack([max_log_sum_exp, torch.ones_like(max_log_sum_exp)], -1)
    else:  # too inaccurate: they are taken once more
        _, saved = _cross_entropy.cross_entropy_fwd(
            logits, labels, _NO_LABEL, float(smoothing)
        )
    return _cross_entropy.cross_entropy_bwd(
        grad_loss.float(), logits, saved, labels, _NO_LABEL, float(smoothing)
    )
