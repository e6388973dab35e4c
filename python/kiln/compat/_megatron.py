"""The kernels of Megatron-LM: softmax of attention scores, and rope. GPT-NeoX, Apex and
TransformerEngine have them under the same signatures.

A scale is a number, or a tensor of one number on the CPU. A mask has bytes, bool or
uint8, and leaves out where they are not 0. Results are new tensors.
"""

from __future__ import annotations

import functools

from ..ops import _rope, _softmax
from . import _unfused
from ._own_path import unfused

# ---- Softmax over the last dimension


@unfused(_unfused.plain_softmax)
def plain_forward(x, scale):
    return _softmax.softmax_fwd(x, float(scale), None, False, False)


@unfused(_unfused.masked_softmax)
def masked_forward(x, mask, scale):
    """x: [batch, heads, sq, sk]; mask: [1 or batch, 1, sq, sk]. A row that is masked as
    a whole is 0, as in Apex and TransformerEngine."""
    mask = _softmax._checked_mask(mask, x)
    return _softmax.softmax_fwd(x, float(scale), mask, False, False)


@unfused(_unfused.causal_softmax)
def causal_forward(x, scale):
    """x: [..., sq, sk]; the triangle ends in the bottom right corner."""
    return _softmax.softmax_fwd(x, float(scale), None, True, False)


def _softmax_backward(kind):
    @unfused(_unfused.softmax_gradient)
    def backward(dy, y, scale):
        return _softmax.softmax_bwd(dy, y, float(scale), kind)

    return backward


plain_backward = _softmax_backward(_softmax._NO_MASK)
masked_backward = _softmax_backward(_softmax._MASK)
causal_backward = _softmax_backward(_softmax._CAUSAL)


def get_batch_per_block(sq, sk, batches, heads) -> int:
    """Callers fuse if it divides their number of rows; Kiln takes any."""
    return 1


# ---- Rope of [sequence, batch, heads, dim], by halves of the first elements of a head:
# as many as the table has columns. The table is [positions, 1, 1, columns].


def table_of(freqs):
    """[positions, columns]"""
    return freqs.reshape(freqs.shape[0], freqs.shape[-1])


def _rotate(operation, t, freqs, transpose_output=False):
    """freqs: angles. transpose_output: the memory is [batch, sequence, heads, dim]."""
    return _rotate_cached(operation, t, freqs, None, transpose_output)


def _rotate_cached(operation, t, cos, sin, transpose_output=False):
    """cos, sin: float32, or of the type of t."""
    if transpose_output:
        s, b, *head = t.shape
        out = t.new_empty((b, s, *head)).transpose(0, 1)
    else:
        out = t.new_empty(t.shape)
    cos, sin = table_of(cos), None if sin is None else table_of(sin)
    return _write(operation, out, t, cos, sin, None, "sbhd")


def _rotate_packed(operation, t, cu_seqlens, freqs):
    """t: [tokens, heads, dim], of packed sequences; cu_seqlens: int32, their ends."""
    out = t.new_empty(t.shape)
    return _write(operation, out, t, table_of(freqs), None, cu_seqlens, "thd")


def _rotate_2d(operation, t, cos_h, sin_h, cos_w, sin_w):
    """t: [batch, height, width, heads, dim]. The first half of a head is rotated by its
    row's table, [1, rows, 1, dim / 2], the second by its column's. Gives [batch, height
    * width, heads, dim]."""
    batch, height, width, heads, dim = t.shape
    t = t.contiguous()  # so that each half is a tensor of four dimensions
    out = t.new_empty((batch, height * width, heads, dim))
    by_rows, by_columns = (batch, height, width * heads, dim), (-1, width, heads, dim)
    for shape, half, cos, sin in (
        (by_rows, slice(dim // 2), cos_h, sin_h),
        (by_columns, slice(dim // 2, dim), cos_w, sin_w),
    ):
        of_out, of_t = (each.view(shape)[..., half] for each in (out, t))
        tables = (each.reshape(-1, each.shape[-1]) for each in (cos, sin))
        _write(operation, of_out, of_t, *tables, None, "bshd")
    return out


def _write(operation, out, t, cos, sin, cu_seqlens, layout):
    no_k = None
    args = t, no_k, cos, sin, cu_seqlens, cos.shape[-1], "half", layout
    operation.write((out, no_k), args)
    return out


def _passes(rotate, formula):
    for operation, sign in ((_rope.rope_fwd, 1), (_rope.rope_bwd, -1)):
        function = functools.partial(rotate, operation)
        yield unfused(functools.partial(formula, sign))(function)


rope_forward, rope_backward = _passes(_rotate, _unfused.rope)
rope_forward_cached, rope_backward_cached = _passes(_rotate_cached, _unfused.rope_cached)
rope_forward_thd, rope_backward_thd = _passes(_rotate_packed, _unfused.rope_thd)
rope_forward_2d, rope_backward_2d = _passes(_rotate_2d, _unfused.rope_2d)
