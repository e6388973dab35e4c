"""RMSNorm: kiln/ops/norm.h."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import _checks
from .._checks import choice, normalized_dimensions
from ._call import WORKSPACE, Result, alike, floating, launch, vmappable, widened


class _Options(NamedTuple):
    dims: int
    eps: float
    casting: int
    from_output: bool


def rms_norm(x, weight=None, eps=1e-6, *, casting="none", memory_efficient=False):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions of x, those of the
    weight; without one over the last dimension.

    weight: of the type of x, or float32. y has the type of x.
    casting: "none" multiplies by the weight in float32, "llama" rounds to the type of x
      before, "gemma" multiplies by 1 + weight, each as the models of that name do.
      Without a weight it changes nothing.
    memory_efficient: the backward pass takes y instead of x, so that XLA need not keep
      x. The gradients have the rounding of y, divided by the weight, as an error. Where
      the weight is 0, its gradient is 0, and that of x lacks a term.
    """
    x = floating("x", x)
    weight = None if weight is None else floating("weight", weight)
    options = _Options(
        normalized_dimensions(x.shape, None if weight is None else weight.shape),
        float(eps),
        choice("casting", casting, _checks.CASTINGS),
        bool(memory_efficient),
    )
    return _rms_norm(options, *alike(x, weight))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rms_norm(options, x, weight):
    return _forward(options, False, x, weight)[0]


def _keep(options, x, weight):
    y, rstd = _forward(options, True, x, weight)
    return y, (y if options.from_output else x, weight, rstd)


def _differentiate(options, kept, dy):
    return _backward(options, dy, *kept)


_rms_norm.defvjp(_keep, _differentiate)


def _forward(options, with_rstd, x, weight):
    """y, and the statistic of each row or None."""

    def call(x, weight):
        rows = x.shape[: x.ndim - options.dims]
        if x.size == 0:
            rstd = jnp.zeros(rows, jnp.float32) if with_rstd else None
            return jnp.zeros_like(x), rstd
        made = launch(
            "rmsnorm_forward",
            y=Result(x.shape, x.dtype),
            rstd=Result(rows, jnp.float32) if with_rstd else None,
            x=x,
            weight=weight,
            eps=options.eps,
            casting=options.casting,
            unused=("zero_centered_weight", "residual", "sum"),
        )
        return made if with_rstd else (*made, None)

    def batched(size, x, weight):
        if weight is not None and weight.shape[0] != 1:  # one for each element
            return None
        weight = None if weight is None else weight[0]
        return _forward(options, with_rstd, widened(size, x), weight)

    return vmappable(call, batched)(x, weight)


def _backward(options, dy, x, weight, rstd):
    """The gradients of x and weight, the last or None. x: or y."""

    def call(dy, x, weight, rstd):
        if x.size == 0:
            return jax.tree.map(jnp.zeros_like, (x, weight))
        has_weight = weight is not None
        made = launch(
            "rmsnorm_backward",
            dx=Result(x.shape, x.dtype),
            dweight=Result(weight.shape, weight.dtype) if has_weight else None,
            dy=dy,
            x=None if options.from_output else x,
            y=x if options.from_output else None,
            weight=weight,
            rstd=rstd,
            casting=options.casting,
            from_output=options.from_output,
            workspace=WORKSPACE if has_weight else None,
            unused=("zero_centered_weight", "dsum"),
        )
        return made if has_weight else (*made, None)

    def batched(size, dy, x, weight, rstd):
        if weight is not None:  # each element has a gradient of it
            return None
        dy, x, rstd = (widened(size, each) for each in (dy, x, rstd))
        return _backward(options, dy, x, None, rstd)

    return vmappable(call, batched)(dy, x, weight, rstd)
