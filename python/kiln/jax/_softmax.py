"""Softmax of attention scores: kiln/ops/softmax.h."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from .. import _checks
from .._checks import check_no_axis, missing_dimensions, refuse
from ._call import Result, alike, floating, launch, vmappable, widened


def softmax(x, scale=1.0, mask=None, causal=False):
    """softmax(scale * x) over the last dimension, in one pass over x.

    mask: bool, broadcastable to x; True leaves an element out, as in Megatron-LM and
      Apex (and not as in dot_product_attention() and jax.nn.softmax(where=)).
    causal: of the last two dimensions [queries, keys], leaves out key j of query i
      where j > i + keys - queries.

    An element that is left out is 0, and a row of them alone is 0. The second argument
    is no axis: an int that may be one is refused.
    """
    x = floating("x", x)
    if x.ndim == 0:
        refuse("x has no dimensions")
    check_no_axis(scale, x.ndim, mask is None and not causal)
    if mask is not None:
        mask = _checked_mask(mask, x)
    if x.ndim == 1:
        mask = None if mask is None else mask[None]
        return softmax(x[None], float(scale), mask, causal)[0]
    if mask is not None and causal:
        queries, keys = x.shape[-2:]
        mask = mask | ~jnp.tri(queries, keys, keys - queries, dtype=bool)
    kind = "bytes" if mask is not None else "causal" if causal else "none"
    x, mask = alike(x, mask)
    return _softmax(float(scale), kind, x, mask)


def _checked_mask(mask, x):
    """The mask with as many dimensions as x."""
    mask = jnp.asarray(mask)
    if mask.dtype.name != "bool":
        refuse(
            f"mask is {mask.dtype.name}: it is bool, and leaves out where it is True; "
            "add other masks to x"
        )
    extra = missing_dimensions("mask", mask.shape, x.shape)
    return mask.reshape((1,) * extra + mask.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _softmax(scale, kind, x, mask):
    return _forward(scale, kind, x, mask)


def _keep(scale, kind, x, mask):
    y = _forward(scale, kind, x, mask)
    return y, y


def _differentiate(scale, kind, y, dy):
    return _backward(scale, kind, dy, y), None


_softmax.defvjp(_keep, _differentiate)


def _scores(x, mask):
    """The shape of x as [batch, heads, queries, keys], and the mask as [1 or batch, 1,
    queries, keys]: dimensions that share a mask are heads."""
    lead, sizes = x.shape[:-2], x.shape[-2:]
    if mask is None:
        return (1, math.prod(lead), *sizes), None
    shared = len(lead)  # the first of the dimensions in which all share a mask
    while shared > 0 and mask.shape[shared - 1] == 1:
        shared -= 1
    mask = jnp.broadcast_to(mask, (*lead[:shared], *mask.shape[shared:-2], *sizes))
    shape = (math.prod(lead[:shared]), math.prod(lead[shared:]), *sizes)
    return shape, mask.reshape(shape[0], 1, *sizes)


def _launched(function, made, scale, kind, shape, like, **given):
    """The result of a pass: computed in that shape, with the shape and type of ``like``."""
    if like.size == 0:
        return jnp.zeros_like(like)
    (result,) = launch(
        function,
        **{made: Result(shape, like.dtype)},
        **given,
        scale=scale,
        mask=_checks.SOFTMAX_MASKS[kind],
    )
    return result.reshape(like.shape)


def _forward(scale, kind, x, mask):
    def call(x, mask):
        shape, mask = _scores(x, mask)
        given = {"x": x.reshape(shape), "mask_bytes": mask, "unused": ("masked_row",)}
        return _launched("softmax_forward", "y", scale, kind, shape, x, **given)

    def batched(size, x, mask):
        return _forward(scale, kind, widened(size, x), mask)

    return vmappable(call, batched)(x, mask)


def _backward(scale, kind, dy, y):
    def call(dy, y):
        shape, _ = _scores(y, None)
        given = {"dy": dy.reshape(shape), "y": y.reshape(shape)}
        return _launched("softmax_backward", "dx", scale, kind, shape, y, **given)

    def batched(size, dy, y):
        return _backward(scale, kind, widened(size, dy), widened(size, y))

    return vmappable(call, batched)(dy, y)
