"""Rotary position embedding: kiln/ops/rope.h."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from .. import _checks
from .._checks import check_layout_of_rope, choice, refuse
from .._checks import rotary_dim as rotary_dim_of
from ._call import Result, alike, floating, folded, launch, unfolded, vmappable


def rope(q, k, cos, sin, style="half", rotary_dim=None):
    """Rotates q and k of [batch, sequence, heads, dim], whose heads may differ in
    number; k may be None. Returns both.

    cos, sin: a row for each position from 0 on, [positions, columns]; or, position ids
      being applied, for each token, [1 or batch, sequence, columns]. float32, or the
      type of q. They are constants: their gradient is 0. sin=None: cos holds angles, in
      radians, as float32.
    style: which elements make a pair: "half" d and d + r / 2 (GPT-NeoX, Llama),
      "interleaved" 2d and 2d + 1 (GPT-J), of the first r = rotary_dim of each head.
    rotary_dim: r, of which cos has r or r / 2 columns. None: as many as cos has
      columns; refused if that is half a head, which may mean either.
    """
    style = choice("style", style, _checks.ROPE_STYLES)
    q, cos = floating("q", q), floating("cos", cos)
    k = None if k is None else floating("k", k)
    sin = None if sin is None else floating("sin", sin)
    _check(q, k, cos, sin)
    check_layout_of_rope(q.shape, cos.shape)
    if rotary_dim is None:
        rotary_dim = rotary_dim_of(q.shape[-1], cos.shape[-1])
    cos = jax.lax.stop_gradient(cos)
    sin = None if sin is None else jax.lax.stop_gradient(sin)
    return _rope((int(rotary_dim), style), *alike(q, k, cos, sin))


def _check(q, k, cos, sin):
    if q.ndim != 4:
        refuse(f"q has the shape {list(q.shape)}; it is [batch, sequence, heads, dim]")
    if k is not None and (
        k.ndim != 4 or k.shape[:2] != q.shape[:2] or k.shape[3] != q.shape[3]
    ):
        refuse(
            f"k has the shape {list(k.shape)}: all but the heads are as in q, "
            f"{list(q.shape)}"
        )
    if k is not None and k.dtype != q.dtype:
        refuse(f"k is {k.dtype.name}, and q {q.dtype.name}")
    if sin is not None and (sin.shape != cos.shape or sin.dtype != cos.dtype):
        refuse(
            f"sin is {sin.dtype.name} {list(sin.shape)}, and cos {cos.dtype.name} "
            f"{list(cos.shape)}"
        )
    if cos.ndim == 3 and cos.shape[0] in (1, q.shape[0]) and cos.shape[1] >= q.shape[1]:
        return
    if cos.ndim != 2 or cos.shape[0] < q.shape[1]:
        refuse(
            f"cos has the shape {list(cos.shape)}: for q, {list(q.shape)}, it is "
            "[positions, columns] or [batch, sequence, columns]"
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rope(how, q, k, cos, sin):
    return _rotate("rope_forward", how, q, k, cos, sin)


def _keep(how, q, k, cos, sin):
    return _rotate("rope_forward", how, q, k, cos, sin), (cos, sin)


def _differentiate(how, kept, gradients):
    return *_rotate("rope_backward", how, *gradients, *kept), None, None


_rope.defvjp(_keep, _differentiate)


def _table(table):
    """[positions, columns]."""
    return None if table is None else table.reshape(-1, table.shape[-1])


def _rotate(function, how, q, k, cos, sin):
    """Of both passes: the gradients of the outputs are rotated, too."""
    rotary_dim, style = how

    def call(q, k, cos, sin):
        if q.size == 0:
            return jnp.zeros_like(q), None if k is None else jnp.zeros_like(k)
        starts = None
        if cos.ndim == 3 and cos.shape[0] > 1:  # where each sequence's rows begin
            starts = jnp.arange(cos.shape[0], dtype=jnp.int32) * cos.shape[1]
            starts, _ = alike(starts, q)
        made = launch(
            function,
            q_out=Result(q.shape, q.dtype),
            q_in=q,
            k_out=None if k is None else Result(k.shape, k.dtype),
            k_in=k,
            table_angles=_table(cos) if sin is None else None,
            table_cos=None if sin is None else _table(cos),
            table_sin=_table(sin),
            starts=starts,
            rotary_dim=rotary_dim,
            style=style,
            layout="bshd",
            unused=("cu_seqlens", "start"),
        )
        return made if k is not None else (*made, None)

    def batched(size, q, k, cos, sin):
        if cos.shape[0] != 1 or (sin is not None and sin.shape[0] != 1):
            return None
        if cos.ndim == 4 and cos.shape[1] > 1:  # a table for each sequence
            cos, sin = folded(size, cos), folded(size, sin)
        else:
            cos, sin = cos[0], None if sin is None else sin[0]
        outputs = _rotate(function, how, folded(size, q), folded(size, k), cos, sin)
        return tuple(unfolded(size, each) for each in outputs)

    return vmappable(call, batched)(q, k, cos, sin)
