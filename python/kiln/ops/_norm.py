"""LayerNorm and RMSNorm: kiln/ops/norm.h."""

from __future__ import annotations

import math

import torch

from . import _inputs
from ._define import Operation
from ._launch import call, call_with_workspace, dense

_CASTINGS = {"none": 0, "llama": 1, "gemma": 2}  # KILN_RMSNORM_CASTING_...


def layer_norm(x, weight, bias=None, eps=1e-5, residual=None):
    """torch's layer_norm over the last dimensions of x, those of the weight.

    residual: is added to x first. Returns (y, x + residual) then.

    The weight has the type of x or is float32; y has the type of x. Under autocast:
    float32.
    """
    x, weight, bias, residual = _inputs.as_float32(x, weight, bias, residual)
    dims = _normalized(x, weight)
    if residual is None:
        return layer_norm_fwd(x, weight, bias, dims, float(eps))[0]
    return add_layer_norm_fwd(x, residual, weight, bias, dims, float(eps))[:2]


def rms_norm(x, weight, eps=1e-6, residual=None, casting="none"):
    """torch's rms_norm over the last dimensions of x, those of the weight.

    residual: is added to x first. Returns (y, x + residual) then.
    casting: "none" multiplies by the weight in float32, "llama" rounds to the type of x
      before, "gemma" multiplies by 1 + weight, each as the models of that name do.

    The weight has the type of x or is float32; y has the type of x. Under autocast:
    float32.
    """
    x, weight, residual = _inputs.as_float32(x, weight, residual)
    casting = _inputs.choice("casting", casting, _CASTINGS)
    dims = _normalized(x, weight)
    if residual is None:
        return rms_norm_fwd(x, weight, dims, float(eps), casting)[0]
    return add_rms_norm_fwd(x, residual, weight, dims, float(eps), casting)[:2]


def _normalized(x, weight):
    """How many dimensions are normalized."""
    if weight is None:
        _inputs.refuse("weight is None, and kiln's norms need one: pass a tensor of ones")
    dims = weight.dim()
    if dims == 0 or dims > x.dim() or x.shape[x.dim() - dims :] != weight.shape:
        _inputs.refuse(
            f"weight has the shape {list(weight.shape)}, and x, whose last dimensions it "
            f"has, {list(x.shape)}"
        )
    return dims


def _statistic(x, dims):
    return x.new_empty(math.prod(x.shape[: x.dim() - dims]), dtype=torch.float32)


def _like(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _optional(is_wanted, like):
    """An output that is left out has no elements."""
    return _like(like) if is_wanted else like.new_empty(0)


def _used(tensor, is_wanted):
    return tensor if is_wanted else None


def _dense(operation, **tensors):
    return [
        None if each is None else dense(f"{operation}.{name}", each)
        for name, each in tensors.items()
    ]


# ---- LayerNorm


def _layer_outputs(x, weight, bias, dims, eps):
    return _like(x), _statistic(x, dims), _statistic(x, dims)


def _layer_forward(outputs, x, weight, bias, dims, eps):
    y, mean, rstd = outputs
    x, weight, bias = _dense("layer_norm", x=x, weight=weight, bias=bias)
    call("layernorm_forward", y, mean, rstd, None, x, weight, bias, None, eps, False)


def _layer_save(ctx, inputs, output):
    x, weight, bias, ctx.dims, _ = inputs
    _, mean, rstd = output
    _keep_layer(ctx, x, weight, bias, mean, rstd)


def _keep_layer(ctx, x, weight, bias, mean, rstd):
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _layer_gradients(ctx, dy, dsum, wanted):
    """The gradients of x, weight and bias; ``wanted``: whether each is."""
    x, weight, mean, rstd = ctx.saved_tensors
    if dy is None:  # the sum alone was used
        dy = torch.zeros_like(x)
    dx, dweight, dbias = layer_norm_bwd(
        dy, x, weight, mean, rstd, dsum, ctx.has_bias, any(wanted[1:]), ctx.dims
    )
    return dx, _used(dweight, wanted[1]), _used(dbias, wanted[2])


def _layer_backward(ctx, dy, *_):
    return *_layer_gradients(ctx, dy, None, ctx.needs_input_grad[:3]), None, None


layer_norm_fwd = Operation(
    "layer_norm_fwd(Tensor x, Tensor? weight, Tensor? bias, int dims, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    outputs=_layer_outputs,
    launch=_layer_forward,
    save=_layer_save,
    backward=_layer_backward,
)


def _add_layer_outputs(x, residual, weight, bias, dims, eps):
    return _like(x), _like(x), _statistic(x, dims), _statistic(x, dims)


def _add_layer_forward(outputs, x, residual, weight, bias, dims, eps):
    y, total, mean, rstd = outputs
    x, residual, weight, bias = _dense(
        "layer_norm", x=x, residual=residual, weight=weight, bias=bias
    )
    call(
        "layernorm_forward", y, mean, rstd, total, x, weight, bias, residual, eps, False
    )


def _add_layer_save(ctx, inputs, output):
    _, _, weight, bias, ctx.dims, _ = inputs
    _, total, mean, rstd = output
    _keep_layer(ctx, total, weight, bias, mean, rstd)


def _add_layer_backward(ctx, dy, dsum, *_):
    wanted = (True, *ctx.needs_input_grad[2:4])
    dx, dweight, dbias = _layer_gradients(ctx, dy, dsum, wanted)
    return dx, dx, dweight, dbias, None, None


add_layer_norm_fwd = Operation(
    "add_layer_norm_fwd(Tensor x, Tensor residual, Tensor? weight, Tensor? bias,"
    " int dims, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
    outputs=_add_layer_outputs,
    launch=_add_layer_forward,
    save=_add_layer_save,
    backward=_add_layer_backward,
)


def _layer_bwd_outputs(dy, x, weight, mean, rstd, dsum, has_bias, of_weight, dims):
    return (
        _like(x),
        _optional(of_weight, weight),
        _optional(of_weight and has_bias, weight),
    )


def _layer_bwd(outputs, dy, x, weight, mean, rstd, dsum, has_bias, of_weight, dims):
    dx, dweight, dbias = outputs
    dy, x, weight, dsum = _dense("layer_norm", dy=dy, x=x, weight=weight, dsum=dsum)
    call_with_workspace(
        "layernorm_backward",
        *(dx, _used(dweight, of_weight), _used(dbias, of_weight and has_bias)),
        *(dy, x, weight, mean, rstd, dsum, has_bias, False),
    )


# Gradients that are not wanted have no elements.
layer_norm_bwd = Operation(
    "layer_norm_bwd(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd,"
    " Tensor? dsum, bool has_bias, bool of_weight, int dims)"
    " -> (Tensor, Tensor, Tensor)",
    outputs=_layer_bwd_outputs,
    launch=_layer_bwd,
)

# ---- RMSNorm


def _rms_outputs(x, weight, dims, eps, casting):
    return _like(x), _statistic(x, dims)


def _rms_forward(outputs, x, weight, dims, eps, casting):
    y, rstd = outputs
    x, weight = _dense("rms_norm", x=x, weight=weight)
    call("rmsnorm_forward", y, rstd, None, x, weight, None, eps, casting, False)


def _rms_save(ctx, inputs, output):
    x, weight, ctx.dims, _, ctx.casting = inputs
    _keep_rms(ctx, x, weight, output[-1])


def _keep_rms(ctx, x, weight, rstd):
    ctx.save_for_backward(x, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _rms_gradients(ctx, dy, dsum, of_weight):
    x, weight, rstd = ctx.saved_tensors
    if dy is None:
        dy = torch.zeros_like(x)
    dx, dweight = rms_norm_bwd(
        dy, x, weight, rstd, dsum, of_weight, ctx.dims, ctx.casting
    )
    return dx, _used(dweight, of_weight)


def _rms_backward(ctx, dy, *_):
    gradients = _rms_gradients(ctx, dy, None, ctx.needs_input_grad[1])
    return *gradients, None, None, None


rms_norm_fwd = Operation(
    "rms_norm_fwd(Tensor x, Tensor? weight, int dims, float eps, int casting)"
    " -> (Tensor, Tensor)",
    outputs=_rms_outputs,
    launch=_rms_forward,
    save=_rms_save,
    backward=_rms_backward,
)


def _add_rms_outputs(x, residual, weight, dims, eps, casting):
    return _like(x), _like(x), _statistic(x, dims)


def _add_rms_forward(outputs, x, residual, weight, dims, eps, casting):
    y, total, rstd = outputs
    x, residual, weight = _dense("rms_norm", x=x, residual=residual, weight=weight)
    call("rmsnorm_forward", y, rstd, total, x, weight, residual, eps, casting, False)


def _add_rms_save(ctx, inputs, output):
    _, _, weight, ctx.dims, _, ctx.casting = inputs
    _, total, rstd = output
    _keep_rms(ctx, total, weight, rstd)


def _add_rms_backward(ctx, dy, dsum, *_):
    dx, dweight = _rms_gradients(ctx, dy, dsum, ctx.needs_input_grad[2])
    return dx, dx, dweight, None, None, None


add_rms_norm_fwd = Operation(
    "add_rms_norm_fwd(Tensor x, Tensor residual, Tensor? weight, int dims, float eps,"
    " int casting) -> (Tensor, Tensor, Tensor)",
    outputs=_add_rms_outputs,
    launch=_add_rms_forward,
    save=_add_rms_save,
    backward=_add_rms_backward,
)


def _rms_bwd(outputs, dy, x, weight, rstd, dsum, of_weight, dims, casting):
    dx, dweight = outputs
    dy, x, weight, dsum = _dense("rms_norm", dy=dy, x=x, weight=weight, dsum=dsum)
    call_with_workspace(
        "rmsnorm_backward",
        *(dx, _used(dweight, of_weight), dy, x, weight, rstd, dsum, casting, False),
    )


rms_norm_bwd = Operation(
    "rms_norm_bwd(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, Tensor? dsum,"
    " bool of_weight, int dims, int casting) -> (Tensor, Tensor)",
    outputs=lambda dy, x, weight, rstd, dsum, of_weight, *_: (
        _like(x),
        _optional(of_weight, weight),
    ),
    launch=_rms_bwd,
)
