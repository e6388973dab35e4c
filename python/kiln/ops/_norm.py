"""LayerNorm and RMSNorm: kiln/ops/norm.h."""

from __future__ import annotations

import math

import torch

from .._checks import CASTINGS, normalized_dimensions
from . import _inputs
from ._define import Operation
from ._launch import function, like

_empty_like = torch.empty_like


def layer_norm(
    x, weight=None, bias=None, eps=1e-5, residual=None, memory_efficient=False
):
    """torch's layer_norm over the last dimensions of x, those of the weight.

    weight: of the type of x, or float32. None: over the last dimension alone, and
      without a bias.
    bias: of the shape and the type of the weight.
    residual: of the shape and the type of x; is added to x first. Returns
      (y, x + residual) then.
    memory_efficient: the backward pass takes y instead of x, so that x need not be
      kept; y mostly is, by the next layer. It must not be changed in place. The
      gradients have the rounding of y, divided by the weight, as an error. Where the
      weight is 0, its gradient is 0, and that of x lacks a term.

    y has the shape and the type of x. Rows that do not begin at a multiple of 16 bytes may
    have other roundings. Under autocast: float32. Errors: InvalidArgument,
    for shapes and types that do not fit, a bias without a weight, and an eps below 0.
    """
    if _inputs.may_autocast():
        x, weight, bias, residual = _inputs.as_float32(x, weight, bias, residual)
    dims = _normalized(x, weight)
    if weight is None and bias is not None:
        _inputs.refuse("bias is given, and weight is None: a bias needs a weight")
    if type(eps) is not float:
        eps = _inputs.number("eps", eps)
    from_y = bool(memory_efficient)
    if residual is None:
        return layer_norm_fwd(x, weight, bias, dims, eps, from_y)[0]
    return add_layer_norm_fwd(x, residual, weight, bias, dims, eps, from_y)[:2]


def rms_norm(
    x, weight=None, eps=1e-6, residual=None, casting="none", memory_efficient=False
):
    """torch's rms_norm over the last dimensions of x, those of the weight.

    weight, residual, memory_efficient, result and errors: as of layer_norm().
    casting: "none" multiplies by the weight in float32, "llama" rounds to the type of x
      before, "gemma" multiplies by 1 + weight, each as the models of that name do.
      Without a weight it changes nothing.
    """
    if _inputs.may_autocast():
        x, weight, residual = _inputs.as_float32(x, weight, residual)
    casting = _inputs.choice("casting", casting, CASTINGS)
    if type(eps) is not float:
        eps = _inputs.number("eps", eps)
    dims, from_y = _normalized(x, weight), bool(memory_efficient)
    if residual is None:
        return rms_norm_fwd(x, weight, dims, eps, casting, from_y)[0]
    return add_rms_norm_fwd(x, residual, weight, dims, eps, casting, from_y)[:2]


def _normalized(x, weight):
    try:
        return normalized_dimensions(x.shape, None if weight is None else weight.shape)
    except AttributeError:
        _inputs.only_tensors(("weight",), x=x, weight=weight)
        raise


# Outputs. One that is left out has no elements.


def _statistic(x, dims):
    rows = math.prod(x.shape[:-dims])
    if x.dtype is torch.float32:  # naming the type takes longer than to ask
        return x.new_empty(rows)
    return x.new_empty(rows, dtype=torch.float32)


def _like_weight(weight, x, is_wanted):
    return like(weight) if is_wanted and weight is not None else x.new_empty(0)


def _used(tensor, is_wanted):
    return tensor if is_wanted else None


# ---- LayerNorm

_layer_forward_kernel = function(
    "layernorm_forward",
    *("y", "mean", "rstd", "sum", "x", "weight", "bias", "residual", "eps"),
    of="layer_norm",
    dense=("x", "weight", "bias", "residual"),
    unused=("zero_centered_weight",),
)
# y takes the place of x, and then there is the bias in place of the mean.
_layer_backward_kernel = function(
    "layernorm_backward",
    *("dx", "dweight", "dbias", "dy", "x", "y", "weight", "bias", "mean", "rstd", "dsum"),
    *("has_bias", "from_output"),
    of="layer_norm",
    dense=("dy", "x", "y", "weight", "bias", "mean", "rstd", "dsum"),
    unused=("zero_centered_weight",),
)


def _layer_outputs(x, weight, bias, dims, eps, memory_efficient):
    rstd = _statistic(x, dims)
    mean = rstd.new_empty(0) if memory_efficient else _empty_like(rstd)
    return like(x), mean, rstd


def _layer_forward(outputs, args):
    y, mean, rstd = outputs
    x, weight, bias, _, eps, memory_efficient = args
    mean = None if memory_efficient else mean
    _layer_forward_kernel(y, mean, rstd, None, x, weight, bias, None, eps)


def _layer_save(ctx, inputs, output):
    x, weight, bias, ctx.dims, _, ctx.from_output = inputs
    y, mean, rstd = output
    ctx.has_bias = bias is not None
    if ctx.from_output:
        ctx.save_for_backward(y, weight, bias, None, rstd)
    else:
        ctx.save_for_backward(x, weight, None, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _layer_gradients(ctx, dy, dsum, wanted):
    """The gradients of x, weight and bias; ``wanted``: whether each is."""
    x, weight, bias, mean, rstd = ctx.saved_tensors
    if dy is None:  # the sum alone was used
        dy = torch.zeros_like(x)
    options = ctx.dims, ctx.has_bias, any(wanted[1:]), ctx.from_output
    inputs = dy, x, weight, bias, mean, rstd, dsum
    dx, dweight, dbias = layer_norm_bwd(*(inputs + options))
    return dx, _used(dweight, wanted[1]), _used(dbias, wanted[2])


def _layer_backward(ctx, dy, *_):
    gradients = _layer_gradients(ctx, dy, None, ctx.needs_input_grad[:3])
    return *gradients, None, None, None


layer_norm_fwd = Operation(
    "layer_norm_fwd(Tensor x, Tensor? weight, Tensor? bias, int dims, float eps,"
    " bool memory_efficient) -> (Tensor, Tensor, Tensor)",
    outputs=_layer_outputs,
    launch=_layer_forward,
    save=_layer_save,
    backward=_layer_backward,
)


def _add_layer_outputs(x, residual, *others):
    y, mean, rstd = _layer_outputs(x, *others)
    return y, like(x), mean, rstd


def _add_layer_forward(outputs, args):
    y, total, mean, rstd = outputs
    x, residual, weight, bias, _, eps, memory_efficient = args
    mean = None if memory_efficient else mean
    _layer_forward_kernel(y, mean, rstd, total, x, weight, bias, residual, eps)


def _add_layer_save(ctx, inputs, output):
    y, total, mean, rstd = output
    _layer_save(ctx, (total, *inputs[2:]), (y, mean, rstd))


def _add_layer_backward(ctx, dy, dsum, *_):
    wanted = (True, *ctx.needs_input_grad[2:4])
    dx, dweight, dbias = _layer_gradients(ctx, dy, dsum, wanted)
    return dx, dx, dweight, dbias, None, None, None


add_layer_norm_fwd = Operation(
    "add_layer_norm_fwd(Tensor x, Tensor residual, Tensor? weight, Tensor? bias,"
    " int dims, float eps, bool memory_efficient) -> (Tensor, Tensor, Tensor, Tensor)",
    outputs=_add_layer_outputs,
    launch=_add_layer_forward,
    save=_add_layer_save,
    backward=_add_layer_backward,
)


def _layer_bwd_outputs(dy, x, weight, bias, mean, rstd, dsum, *options):
    _, has_bias, of_weight, _ = options
    return (
        like(x),
        _like_weight(weight, x, of_weight),
        _like_weight(weight, x, of_weight and has_bias),
    )


def _layer_bwd(outputs, args):
    dx, dweight, dbias = outputs
    dy, x, weight, bias, mean, rstd, dsum, _, has_bias, of_weight, from_output = args
    dweight, dbias = _used(dweight, of_weight), _used(dbias, of_weight and has_bias)
    x, y = (None, x) if from_output else (x, None)
    inputs = dy, x, y, weight, bias, mean, rstd, dsum
    _layer_backward_kernel(dx, dweight, dbias, *inputs, has_bias, from_output)


# from_output: x is y, and there is the bias in place of the mean. Gradients that are
# not wanted have no elements.
layer_norm_bwd = Operation(
    "layer_norm_bwd(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor? mean,"
    " Tensor rstd, Tensor? dsum, int dims, bool has_bias, bool of_weight,"
    " bool from_output) -> (Tensor, Tensor, Tensor)",
    outputs=_layer_bwd_outputs,
    launch=_layer_bwd,
)

# ---- RMSNorm

_rms_forward_kernel = function(
    "rmsnorm_forward",
    *("y", "rstd", "sum", "x", "weight", "residual", "eps", "casting"),
    of="rms_norm",
    dense=("x", "weight", "residual"),
    unused=("zero_centered_weight",),
)
_rms_backward_kernel = function(
    "rmsnorm_backward",
    *("dx", "dweight", "dy", "x", "y", "weight", "rstd", "dsum", "casting", "from_output"),
    of="rms_norm",
    dense=("dy", "x", "y", "weight", "rstd", "dsum"),
    unused=("zero_centered_weight",),
)


def _rms_outputs(x, weight, dims, *_):
    return like(x), _statistic(x, dims)


def _rms_forward(outputs, args):
    y, rstd = outputs
    x, weight, _, eps, casting, _ = args
    _rms_forward_kernel(y, rstd, None, x, weight, None, eps, casting)


def _rms_save(ctx, inputs, output):
    x, weight, ctx.dims, _, ctx.casting, ctx.from_output = inputs
    y, rstd = output
    ctx.save_for_backward(y if ctx.from_output else x, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _rms_gradients(ctx, dy, dsum, of_weight):
    x, weight, rstd = ctx.saved_tensors
    if dy is None:
        dy = torch.zeros_like(x)
    dx, dweight = rms_norm_bwd(
        dy, x, weight, rstd, dsum, ctx.dims, ctx.casting, of_weight, ctx.from_output
    )
    return dx, _used(dweight, of_weight)


def _rms_backward(ctx, dy, *_):
    gradients = _rms_gradients(ctx, dy, None, ctx.needs_input_grad[1])
    return *gradients, None, None, None, None


rms_norm_fwd = Operation(
    "rms_norm_fwd(Tensor x, Tensor? weight, int dims, float eps, int casting,"
    " bool memory_efficient) -> (Tensor, Tensor)",
    outputs=_rms_outputs,
    launch=_rms_forward,
    save=_rms_save,
    backward=_rms_backward,
)


def _add_rms_outputs(x, residual, weight, dims, *_):
    return like(x), like(x), _statistic(x, dims)


def _add_rms_forward(outputs, args):
    y, total, rstd = outputs
    x, residual, weight, _, eps, casting, _ = args
    _rms_forward_kernel(y, rstd, total, x, weight, residual, eps, casting)


def _add_rms_save(ctx, inputs, output):
    y, total, rstd = output
    _rms_save(ctx, (total, *inputs[2:]), (y, rstd))


def _add_rms_backward(ctx, dy, dsum, *_):
    dx, dweight = _rms_gradients(ctx, dy, dsum, ctx.needs_input_grad[2])
    return dx, dx, dweight, None, None, None, None


add_rms_norm_fwd = Operation(
    "add_rms_norm_fwd(Tensor x, Tensor residual, Tensor? weight, int dims, float eps,"
    " int casting, bool memory_efficient) -> (Tensor, Tensor, Tensor)",
    outputs=_add_rms_outputs,
    launch=_add_rms_forward,
    save=_add_rms_save,
    backward=_add_rms_backward,
)


def _rms_bwd(outputs, args):
    dx, dweight = outputs
    dy, x, weight, rstd, dsum, _, casting, of_weight, from_output = args
    x, y = (None, x) if from_output else (x, None)
    inputs = dy, x, y, weight, rstd, dsum
    _rms_backward_kernel(dx, _used(dweight, of_weight), *inputs, casting, from_output)


# As layer_norm_bwd.
rms_norm_bwd = Operation(
    "rms_norm_bwd(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, Tensor? dsum,"
    " int dims, int casting, bool of_weight, bool from_output) -> (Tensor, Tensor)",
    outputs=lambda dy, x, weight, rstd, dsum, dims, casting, of_weight, *_: (
        like(x),
        _like_weight(weight, x, of_weight),
    ),
    launch=_rms_bwd,
)
