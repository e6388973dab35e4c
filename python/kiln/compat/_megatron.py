"""The kernels of Megatron-LM: softmax of attention scores, and rope. GPT-NeoX, Apex and
TransformerEngine have them under the same signatures.

A scale is a number, or a tensor of one number on the CPU. A mask has bytes, bool or
uint8, and leaves out where they are not 0. Results are new tensors.
"""

from __future__ import annotations

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


@unfused(_unfused.softmax_gradient)
def plain_backward(dy, y, scale):
    return _softmax.softmax_bwd(dy, y, float(scale), _softmax._NO_MASK)


@unfused(_unfused.softmax_gradient)
def masked_backward(dy, y, scale):
    return _softmax.softmax_bwd(dy, y, float(scale), _softmax._MASK)


@unfused(_unfused.softmax_gradient)
def causal_backward(dy, y, scale):
    return _softmax.softmax_bwd(dy, y, float(scale), _softmax._CAUSAL)


def get_batch_per_block(sq, sk, batches, heads) -> int:
    """Callers fuse if it divides their number of rows; Kiln takes any."""
    return 1


# ---- Rope of [sequence, batch, heads, dim], by halves of the first elements of a head:
# as many as the table has columns. The table is [positions, 1, 1, columns].


@unfused(_unfused.rope)
def rope_forward(t, freqs, transpose_output=False):
    """freqs: angles. transpose_output: the memory is [batch, sequence, heads, dim]."""
    return _rotate(_rope.rope_fwd, t, freqs, None, transpose_output)


@unfused(_unfused.rope_gradient)
def rope_backward(dy, freqs, transpose_output=False):
    return _rotate(_rope.rope_bwd, dy, freqs, None, transpose_output)


@unfused(_unfused.rope_cached)
def rope_forward_cached(t, cos, sin, transpose_output=False):
    """cos, sin: float32, or of the type of t."""
    return _rotate(_rope.rope_fwd, t, cos, sin, transpose_output)


@unfused(_unfused.rope_cached_gradient)
def rope_backward_cached(dy, cos, sin, transpose_output=False):
    return _rotate(_rope.rope_bwd, dy, cos, sin, transpose_output)


@unfused(_unfused.rope_thd)
def rope_forward_thd(t, cu_seqlens, freqs):
    """t: [tokens, heads, dim], of packed sequences; cu_seqlens: int32, their ends."""
    return _rotate_packed(_rope.rope_fwd, t, cu_seqlens, freqs)


@unfused(_unfused.rope_thd_gradient)
def rope_backward_thd(dy, cu_seqlens, freqs):
    return _rotate_packed(_rope.rope_bwd, dy, cu_seqlens, freqs)


@unfused(_unfused.rope_2d)
def rope_forward_2d(t, cos_h, sin_h, cos_w, sin_w):
    """t: [batch, height, width, heads, dim]. The first half of a head is rotated by its
    row's table, [1, rows, 1, dim / 2], the second by its column's. Gives [batch, height
    * width, heads, dim]."""
    return _rotate_2d(_rope.rope_fwd, t, cos_h, sin_h, cos_w, sin_w)


@unfused(_unfused.rope_2d_gradient)
def rope_backward_2d(dy, cos_h, sin_h, cos_w, sin_w):
    return _rotate_2d(_rope.rope_bwd, dy, cos_h, sin_h, cos_w, sin_w)


def table_of(freqs):
    """[positions, columns]"""
    return freqs.reshape(freqs.shape[0], freqs.shape[-1])


def _rotate(operation, t, cos, sin, transposed):
    if transposed:
        s, b, *head = t.shape
        out = t.new_empty((b, s, *head)).transpose(0, 1)
    else:
        out = t.new_empty(t.shape)
    cos, sin = table_of(cos), None if sin is None else table_of(sin)
    return _write(operation, out, t, cos, sin, None, "sbhd")


def _rotate_packed(operation, t, cu_seqlens, freqs):
    out = t.new_empty(t.shape)
    return _write(operation, out, t, table_of(freqs), None, cu_seqlens, "thd")


def _rotate_2d(operation, t, cos_h, sin_h, cos_w, sin_w):
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
