"""LayerNorm and RMSNorm: kiln/ops/norm.h."""

from __future__ import annotations

import math

import torch

from .._checks import CASTINGS, normalized_dimensions
from . import _inputs
from ._define import Operation
from ._launch import like
from ._types import Tensor


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    residual: Tensor | None = None,
    memory_efficient: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
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
    _check(x, weight)
    if weight is None and bias is not None:
        _inputs.refuse("bias is given, and weight is None: a bias needs a weight")
    if type(eps) is not float:
        eps = _inputs.number("eps", eps)
    from_y = bool(memory_efficient)
    if residual is None:
        return layer_norm_fwd(x, weight, bias, eps, from_y)[0]
    return add_layer_norm_fwd(x, residual, weight, bias, eps, from_y)[:2]


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    casting: str = "none",
    memory_efficient: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
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
    _check(x, weight)
    from_y = bool(memory_efficient)
    if residual is None:
        return rms_norm_fwd(x, weight, eps, casting, from_y)[0]
    return add_rms_norm_fwd(x, residual, weight, eps, casting, from_y)[:2]


def _check(x, weight):
    try:
        normalized_dimensions(x.shape, None if weight is None else weight.shape)
    except AttributeError:
        _inputs.only_tensors(("weight",), x=x, weight=weight)
        raise


# Outputs. One that is left out has no elements.


def _statistic(x, weight):
    rows = math.prod(x.shape[: x.dim() - (1 if weight is None else weight.dim())])
    if x.dtype is torch.float32:  # naming the type takes longer than to ask
        return x.new_empty(rows)
    return x.new_empty(rows, dtype=torch.float32)


def _like_weight(weight, dy, is_wanted):
    return like(weight) if is_wanted and weight is not None else dy.new_empty(0)


def _used(tensor, is_wanted):
    return tensor if is_wanted else None


def _forward(kernel, parameters, statistics, outputs, save, gradients):
    """The forward operation, and the one that adds a residual to x first.

    outputs: those of the first. save(ctx, args, y, *statistics). gradients(ctx, needs, dy,
      dsum): by name; ``args`` and ``needs`` are by name, too. dsum: of the sum with the
      residual, or None.
    """

    def add_outputs(x, residual, *others):
        y, *rest = outputs(x, *others)
        return y, like(x), *rest

    def plain_save(ctx, inputs, output):
        save(ctx, plain.by_name(inputs), *output)

    def add_save(ctx, inputs, output):
        y, total, *rest = output
        save(ctx, {**adding.by_name(inputs), "x": total}, y, *rest)

    def backward(ctx, dy, *_):
        needs = plain.by_name(ctx.needs_input_grad)
        return plain.gradients(**gradients(ctx, needs, dy, None))

    def add_backward(ctx, dy, dsum, *_):
        if dy is None:  # the sum alone was used
            dy = like(dsum).zero_()
        found = gradients(ctx, adding.by_name(ctx.needs_input_grad), dy, dsum)
        return adding.gradients(residual=found["x"], **found)

    name = kernel.replace("norm_forward", "_norm_fwd")
    own, unused = ("memory_efficient",), ("zero_centered_weight",)
    plain = Operation(
        f"{name}(Tensor x, {parameters}, bool memory_efficient) -> (Tensor y, {statistics})",
        outputs=outputs,
        launch=kernel,
        save=plain_save,
        backward=backward,
        own=own,
        unused=(*unused, "residual", "sum"),
    )
    adding = Operation(
        f"add_{name}(Tensor x, Tensor residual, {parameters}, bool memory_efficient)"
        f" -> (Tensor y, Tensor sum, {statistics})",
        outputs=add_outputs,
        launch=kernel,
        save=add_save,
        backward=add_backward,
        own=own,
        unused=unused,
    )
    return plain, adding


# ---- LayerNorm


def _layer_outputs(x, weight, bias, eps, memory_efficient):
    rstd = _statistic(x, weight)
    mean = rstd.new_empty(0) if memory_efficient else torch.empty_like(rstd)
    return like(x), mean, rstd


_LAYER_KEPT = ("x", "y", "weight", "bias", "mean", "rstd")


def _layer_save(ctx, args, y, mean, rstd):
    weight, bias = args["weight"], args["bias"]
    ctx.from_output = args["memory_efficient"]
    ctx.has_bias = bias is not None
    if ctx.from_output:
        ctx.save_for_backward(None, y, weight, bias, None, rstd)
    else:
        ctx.save_for_backward(args["x"], None, weight, None, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _layer_gradients(ctx, needs, dy, dsum):
    of_weight, of_bias = needs["weight"], needs["bias"]
    kept = dict(zip(_LAYER_KEPT, ctx.saved_tensors, strict=True))
    wanted = {"of_weight": of_weight or of_bias, "has_bias": ctx.has_bias}
    dx, dweight, dbias = layer_norm_bwd.named(
        dy=dy, dsum=dsum, from_output=ctx.from_output, **kept, **wanted
    )
    return {"x": dx, "weight": _used(dweight, of_weight), "bias": _used(dbias, of_bias)}


layer_norm_fwd, add_layer_norm_fwd = _forward(
    "layernorm_forward",
    "Tensor? weight, Tensor? bias, float eps",
    "Tensor mean, Tensor rstd",
    outputs=_layer_outputs,
    save=_layer_save,
    gradients=_layer_gradients,
)
# Either of x, with the mean, or of y, with the bias. Gradients that are not wanted have
# no elements.
layer_norm_bwd = Operation(
    "layer_norm_bwd(Tensor dy, Tensor? x, Tensor? y, Tensor? weight, Tensor? bias,"
    " Tensor? mean, Tensor rstd, Tensor? dsum, bool has_bias, bool from_output,"
    " bool of_weight) -> (Tensor dx, Tensor dweight, Tensor dbias)",
    outputs=lambda dy, x, y, weight, bias, mean, rstd, dsum, has_bias, _, of_weight: (
        like(dy),
        _like_weight(weight, dy, of_weight),
        _like_weight(weight, dy, of_weight and has_bias),
    ),
    launch="layernorm_backward",
    own=("of_weight",),
    unused=("zero_centered_weight",),
)

# ---- RMSNorm


_RMS_KEPT = ("x", "y", "weight", "rstd")


def _rms_save(ctx, args, y, rstd):
    ctx.casting, ctx.from_output = args["casting"], args["memory_efficient"]
    kept = (None, y) if ctx.from_output else (args["x"], None)
    ctx.save_for_backward(*kept, args["weight"], rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _rms_gradients(ctx, needs, dy, dsum):
    of_weight = needs["weight"]
    kept = dict(zip(_RMS_KEPT, ctx.saved_tensors, strict=True))
    options = {"casting": ctx.casting, "from_output": ctx.from_output}
    dx, dweight = rms_norm_bwd.named(
        dy=dy, dsum=dsum, of_weight=of_weight, **kept, **options
    )
    return {"x": dx, "weight": _used(dweight, of_weight)}


rms_norm_fwd, add_rms_norm_fwd = _forward(
    "rmsnorm_forward",
    "Tensor? weight, float eps, int casting",
    "Tensor rstd",
    outputs=lambda x, weight, *_: (like(x), _statistic(x, weight)),
    save=_rms_save,
    gradients=_rms_gradients,
)
# As layer_norm_bwd.
rms_norm_bwd = Operation(
    "rms_norm_bwd(Tensor dy, Tensor? x, Tensor? y, Tensor? weight, Tensor rstd,"
    " Tensor? dsum, int casting, bool from_output, bool of_weight)"
    " -> (Tensor dx, Tensor dweight)",
    outputs=lambda dy, x, y, weight, *others: (
        like(dy),
        _like_weight(weight, dy, others[-1]),
    ),
    launch="rmsnorm_backward",
    own=("of_weight",),
    unused=("zero_centered_weight",),
)
