"""Scaled dot-product attention: kiln/ops/attention.h."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import _checks
from .._checks import choice, missing_dimensions, refuse
from ._call import (
    WORKSPACE,
    Result,
    alike,
    floating,
    folded,
    launch,
    unfolded,
    vmappable,
)


_GRADIENTS = ("grad_q", "grad_k", "grad_v", "grad_bias", "grad_o")

_IMPLEMENTATIONS = {None: "kiln", "cudnn": "kiln", "xla": "xla"}


class _Problem(NamedTuple):
    layout: str
    mask: int
    window: tuple[int, int]
    scale: float | None
    bias_kind: int
    bias_gradient: bool


def dot_product_attention(
    query,
    key,
    value,
    bias=None,
    mask=None,
    *,
    scale=None,
    is_causal=False,
    query_seq_lengths=None,
    key_value_seq_lengths=None,
    local_window_size=None,
    implementation=None,
    return_residual=False,
    alibi=False,
):
    """jax.nn.dot_product_attention of [batch, length, heads, dim], or without batch: by
    cuDNN, if it can, else by Kiln's kernel.

    bias, mask: may have one element for all batches, heads or queries; a bias is expanded
      over queries. A mask alone is read as it is; an array of the type of query is made of
      the sum of both.
    alibi: whether -slope * |i - j| is added to the score of query i and key j, with the
      slopes of Press et al., 2022. Excludes bias, mask and "xla".
    implementation: "xla" is JAX's own function; of None and "cudnn" Kiln decides.

    A query that sees no key gives 0, and not the mean of the values.
    """
    is_xla = choice("implementation", implementation, _IMPLEMENTATIONS) == "xla"
    if alibi and (is_xla or bias is not None or mask is not None):
        refuse('alibi=True excludes bias, mask and implementation="xla"')
    if is_xla:
        return jax.nn.dot_product_attention(
            *(query, key, value, bias, mask),
            scale=scale,
            is_causal=is_causal,
            query_seq_lengths=query_seq_lengths,
            key_value_seq_lengths=key_value_seq_lengths,
            local_window_size=local_window_size,
            implementation="xla",
            return_residual=return_residual,
        )
    q, k, v = _checked(query, key, value)
    lengths = _lengths(q, k, query_seq_lengths, key_value_seq_lengths)
    has_gradient = bias is not None
    bias = _bias(q, k, bias, mask)
    kind = "alibi" if alibi else "none"
    if bias is not None:
        kind = "boolean" if bias.dtype == bool else "post_scale"
    problem = _Problem(
        layout="bshd",
        mask=_mask(is_causal, lengths[0] is not None),
        window=_window(local_window_size, is_causal),
        scale=None if scale is None else float(scale),
        bias_kind=_checks.ATTENTION_BIASES[kind],
        bias_gradient=has_gradient,
    )
    arrays = alike(q, k, v, bias, *lengths)
    o, stats = _attention(problem, return_residual, *arrays)
    o = o.reshape(jnp.shape(query))
    if not return_residual:
        return o
    stats = jax.lax.stop_gradient(stats).transpose(0, 2, 1).astype(k.dtype)
    return o, stats.reshape(o.shape[:-1])


# ---- Arguments


def _checked(*arrays):
    """Query, key and value with four dimensions."""
    names = ("query", "key", "value")
    q, k, v = (floating(name, each) for name, each in zip(names, arrays))
    for name, each in zip(names, (q, k, v)):
        if each.ndim not in (3, 4) or each.ndim != q.ndim:
            refuse(f"{name} has the shape {list(each.shape)}, query {list(q.shape)}")
        if each.dtype != q.dtype:
            refuse(f"{name} is {each.dtype.name}, and query {q.dtype.name}")
    if q.ndim == 3:
        q, k, v = q[None], k[None], v[None]
    if v.shape != k.shape:
        refuse(f"key has the shape {list(k.shape)}, and value {list(v.shape)}")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        refuse(
            f"query has the shape {list(q.shape)}, and key {list(k.shape)}: their "
            "batch or head dimensions differ"
        )
    if k.shape[2] == 0 or q.shape[2] % k.shape[2] != 0:
        refuse(f"query has {q.shape[2]} heads, no multiple of the {k.shape[2]} of key")
    return q, k, v


def _lengths(q, k, of_query, of_key):
    """The true lengths of both, or neither."""
    if of_query is None and of_key is None:
        return None, None
    both = []
    for name, lengths, longest in (
        ("query_seq_lengths", of_query, q.shape[1]),
        ("key_value_seq_lengths", of_key, k.shape[1]),
    ):
        if lengths is None:
            lengths = jnp.full(q.shape[0], longest, jnp.int32)
        lengths = jnp.asarray(lengths)
        if lengths.dtype.name != "int32" or lengths.shape != (q.shape[0],):
            refuse(
                f"{name} is {lengths.dtype.name} {list(lengths.shape)}: it is int32, "
                "one length for each sequence"
            )
        both.append(lengths)
    return tuple(both)


def _mask(is_causal, has_lengths):
    if has_lengths:
        kind = "padding_causal" if is_causal else "padding"
    else:
        kind = "causal" if is_causal else "none"
    return _checks.ATTENTION_MASKS[kind]


def _window(size, is_causal):
    """How many keys to the left and to the right of its own a query sees; -1: all."""
    if size is None:
        return -1, -1
    left, right = (size, size) if isinstance(size, int) else size
    if left < 0 or right < 0:
        refuse(f"local_window_size is {size}: both sizes are 0 or more")
    return int(left), -1 if is_causal else int(right)


def _bias(q, k, bias, mask):
    """What is added to the scores, or a mask, [batch, heads, queries, keys], of which the
    first three may be 1; with a gradient, which has each query, the first two."""
    shape = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    for name, each in (("bias", bias), ("mask", mask)):
        if each is not None:
            missing_dimensions(name, jnp.shape(each), shape)
    has_gradient = bias is not None
    if mask is not None:
        mask = jnp.asarray(mask)
        if mask.dtype.name != "bool":
            refuse(f"mask is {mask.dtype.name}: it is bool; give other masks as bias")
        bias = mask if bias is None else bias + jnp.where(mask, 0, -jnp.inf)
    if bias is None:
        return None
    if has_gradient:
        bias = jnp.asarray(bias).astype(q.dtype)
    bias = bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
    rows = shape[2] if has_gradient else bias.shape[2]
    return jnp.broadcast_to(bias, (*bias.shape[:2], rows, shape[3]))


# ---- The operation


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(problem, with_stats, q, k, v, bias, lengths_q, lengths_k):
    """o, and [batch, heads, queries] with the statistics, or None."""
    return _forward(problem, with_stats, q, k, v, bias, lengths_q, lengths_k)


def _keep(problem, with_stats, *arrays):
    o, stats = _forward(problem, True, *arrays)
    return (o, stats if with_stats else None), (*arrays, o, stats)


def _differentiate(problem, with_stats, kept, gradients):
    do, _ = gradients
    return *_backward(problem, do, *kept), None, None


_attention.defvjp(_keep, _differentiate)


def _parameters(problem, bias, lengths_q, lengths_k):
    """What both functions of python/ffi take beside tensors of their own."""
    left, right = problem.window
    return {
        "bias": bias,
        "bias_kind": problem.bias_kind,
        "lengths_q": lengths_q,
        "lengths_kv": lengths_k,
        "layout": problem.layout,
        "mask": problem.mask,
        "window_left": left,
        "window_right": right,
        "scale": problem.scale,
        "longest_q": 0,
        "longest_kv": 0,
        "workspace": WORKSPACE,
        "unused": (
            *("dropout", "dropout_seed", "dropout_offset"),
            *("cu_seqlens_q", "cu_seqlens_kv", "deterministic", "capture"),
        ),
    }


def _repeats_heads(size, batch, bias):
    """Whether _folded_bias() would repeat a bias that has heads."""
    if bias is None or bias.shape[2] == 1:
        return False
    return bias.shape[:2] not in ((1, 1), (size, batch))


def _folded_bias(size, batch, bias):
    if bias is None or bias.shape[:2] == (1, 1):
        return None if bias is None else bias[0]
    return folded(size, jnp.broadcast_to(bias, (size, batch, *bias.shape[2:])))


def _forward(problem, with_stats, *arrays):
    def call(q, k, v, bias, lengths_q, lengths_k):
        at = (q.shape[0], *(q.shape[problem.layout.index(d)] for d in "hs"))
        stats = Result(at, jnp.float32) if with_stats else None
        if q.size == 0 or k.size == 0:
            none = None if stats is None else jnp.full(at, -jnp.inf, jnp.float32)
            return jnp.zeros_like(q), none
        made = launch(
            "attention_forward",
            o=Result(q.shape, q.dtype),
            stats=stats,
            **dict.fromkeys(_GRADIENTS),
            **{"q": q, "k": k, "v": v},
            **_parameters(problem, bias, lengths_q, lengths_k),
        )
        return made if with_stats else (*made, None)

    def batched(size, q, k, v, bias, *lengths):
        if _repeats_heads(size, q.shape[1], bias):
            return None
        bias = _folded_bias(size, q.shape[1], bias)
        q, k, v, *lengths = (folded(size, each) for each in (q, k, v, *lengths))
        outputs = _forward(problem, with_stats, q, k, v, bias, *lengths)
        return tuple(unfolded(size, each) for each in outputs)

    return vmappable(call, batched)(*arrays)


def _backward(problem, *arrays):
    """The gradients of q, k, v and bias, the last or None."""

    def call(do, q, k, v, bias, lengths_q, lengths_k, o, stats):
        inputs = (q, k, v, bias) if problem.bias_gradient else (q, k, v)
        if q.size == 0 or k.size == 0:
            made = tuple(jnp.zeros_like(each) for each in inputs)
        else:
            results = dict.fromkeys(_GRADIENTS)
            for name, each in zip(_GRADIENTS, inputs):
                results[name] = Result(each.shape, each.dtype)
            made = launch(
                "attention_backward",
                **(results | {"grad_o": do}),
                **{"q": q, "k": k, "v": v, "o": o, "stats": stats},
                **_parameters(problem, bias, lengths_q, lengths_k),
            )
        return made if problem.bias_gradient else (*made, None)

    def batched(size, do, q, k, v, bias, lengths_q, lengths_k, o, stats):
        if problem.bias_gradient or _repeats_heads(size, q.shape[1], bias):
            return None
        folds = functools.partial(folded, size)
        bias = _folded_bias(size, q.shape[1], bias)
        outputs = _backward(
            *(problem, folds(do), folds(q), folds(k), folds(v), bias),
            *(folds(lengths_q), folds(lengths_k), folds(o), folds(stats)),
        )
        return tuple(unfolded(size, each) for each in outputs)

    return vmappable(call, batched)(*arrays)
