"""xformers: memory_efficient_attention of [batch, tokens, heads, dim] and of [batch,
tokens, groups, heads, dim], by the attention of kiln.ops.

The dimensions of groups and heads are one to Kiln's kernels: with four or with five the
same kernel computes, on the device that the tensors are on. Heads that share a key and
a value by a stride of 0, as expanded tensors do, are grouped queries: nothing is
repeated in memory, and there is a gradient.

A bias is known by the name of its class, so this needs no xformers. What is not covered
is a NotImplementedError, and is left to an installed xformers: pages of keys, quantized
tensors, another type of the output.
"""

from __future__ import annotations

import functools
import math

import torch

from .. import errors
from ..ops import _attention, _inputs, _launch

# KILN_ATTENTION_MASK_...: of packed sequences, or not.
_NONE, _TOP_LEFT, _BOTTOM_RIGHT = 0, 1, 2
_PACKED, _PACKED_TOP_LEFT, _PACKED_BOTTOM_RIGHT = 3, 4, 5

# How a query sees the keys; a bias with a ``_window_size`` limits their number.
_DENSE = {
    "NoneType": _NONE,
    "LowerTriangularMask": _TOP_LEFT,
    "LowerTriangularMaskWithTensorBias": _TOP_LEFT,
    "LowerTriangularFromBottomRightMask": _BOTTOM_RIGHT,
    "LowerTriangularFromBottomRightLocalAttentionMask": _BOTTOM_RIGHT,
    "LocalAttentionFromBottomRightMask": _NONE,
}
_BLOCK_DIAGONAL = {
    "BlockDiagonalMask": _PACKED,
    "BlockDiagonalCausalMask": _PACKED_TOP_LEFT,
    "BlockDiagonalCausalLocalAttentionMask": _PACKED_TOP_LEFT,
    "BlockDiagonalCausalFromBottomRightMask": _PACKED_BOTTOM_RIGHT,
    "BlockDiagonalCausalLocalAttentionFromBottomRightMask": _PACKED_BOTTOM_RIGHT,
    # The keys of a block are followed by others, which do not count.
    "BlockDiagonalPaddedKeysMask": _PACKED,
    "BlockDiagonalCausalWithOffsetPaddedKeysMask": _PACKED_BOTTOM_RIGHT,
    "BlockDiagonalCausalLocalAttentionPaddedKeysMask": _PACKED_BOTTOM_RIGHT,
    "BlockDiagonalGappyKeysMask": _PACKED,
    "BlockDiagonalCausalWithOffsetGappyKeysMask": _PACKED_BOTTOM_RIGHT,
}
_TYPES = (torch.float16, torch.bfloat16, torch.float32)


class NotCovered(errors.Unavailable, NotImplementedError):
    """xformers has it, and Kiln has not."""


def memory_efficient_attention(
    query,
    key,
    value,
    attn_bias=None,
    p=0.0,
    scale=None,
    *,
    op=None,
    output_dtype=None,
):
    """softmax(query @ key^T * scale + attn_bias) @ value, with the shape of query and
    the last dimension of value; contiguous.

    attn_bias: a tensor that is added, [batch, heads, queries, keys] or [batch, groups,
      heads, queries, keys]; or a bias of xformers.
    p: the probability of dropout.
    op: not looked at: kiln.explain() says what computes.

    A query that sees no key gives 0. Autocast casts nothing here.
    """
    _check(query, key, value)
    if output_dtype not in (None, query.dtype):
        raise NotCovered(f"an output of {output_dtype} for inputs of {query.dtype}")
    shape = (*query.shape[:-1], value.shape[-1])
    q, k, v = _with_one_dimension_of_heads(query, key, value)
    kind = type(attn_bias).__name__
    if isinstance(attn_bias, torch.Tensor):
        o = _dense(q, k, v, attn_bias, None, p, scale)
    elif kind in _DENSE:
        added = getattr(attn_bias, "_bias", None)
        o = _dense(q, k, v, added, attn_bias, p, scale)
    elif kind in _BLOCK_DIAGONAL:
        o = _packed(q, k, v, attn_bias, p, scale)
    else:
        raise NotCovered(f"kiln has no attention with a bias of the class {kind}")
    return o.contiguous().view(shape)


@functools.wraps(memory_efficient_attention, assigned=())  # its parameters
def memory_efficient_attention_forward(*args, **named):
    """memory_efficient_attention() without gradients."""
    with torch.no_grad():
        return memory_efficient_attention(*args, **named)


def _check(query, key, value):
    types = [each.dtype for each in (query, key, value)]
    if not set(types) <= set(_TYPES):
        names = ", ".join(str(each).removeprefix("torch.") for each in types)
        raise NotCovered(f"kiln has no attention of tensors of {names}")
    q, k, v = (each.shape for each in (query, key, value))
    if not 3 <= len(q) <= 5 or k != (q[0], *k[1:2], *q[2:]) or v[:-1] != k[:-1]:
        _inputs.refuse(
            f"query, key and value have the shapes {list(q)}, {list(k)} and {list(v)}: "
            "[batch, tokens, (groups,) heads, dim], of equal batches and heads; expand "
            "the key and the value that heads share"
        )


def _is_shared(tensor) -> bool:
    """Whether the heads, of a group if there are groups, are one. A leaf is to have a
    gradient for each."""
    is_leaf = tensor.requires_grad and tensor.is_leaf
    return tensor.stride(-2) == 0 and tensor.shape[-2] > 1 and not is_leaf


def _with_one_dimension_of_heads(query, key, value):
    """[batch, tokens, heads, dim]; key and value have one head for those that share. A
    query keeps its groups if they share, and no one stride leads to all its heads."""
    if query.dim() == 3:
        return [each.unsqueeze(2) for each in (query, key, value)]
    is_shared = _is_shared(key) and _is_shared(value)
    if is_shared:
        key, value = key.narrow(-2, 0, 1), value.narrow(-2, 0, 1)
    if query.dim() == 4:
        return query, key, value
    if is_shared and query.stride(2) != query.shape[3] * query.stride(3):
        return query, key.squeeze(-2), value.squeeze(-2)
    named = (("q", query), ("k", key), ("v", value))
    return [_joined(f"attention.{name}", each) for name, each in named]


def _joined(name, tensor):
    """[batch, tokens, groups, heads, dim] without a dimension of groups."""
    batch, tokens, groups, heads, dim = tensor.shape
    shape = (batch, tokens, groups * heads, dim)
    try:
        return tensor.view(shape)
    except RuntimeError:  # no one stride leads to all heads
        _launch.count_copy(name, tensor)
        return tensor.reshape(shape)


def _dense(q, k, v, added, attn_bias, p, scale):
    queries, keys = q.shape[1], k.shape[1]
    mask = _DENSE[type(attn_bias).__name__]
    left, right = _window(attn_bias, keys - queries)
    q, k, v = (each.movedim(1, -2) for each in (q, k, v))
    if added is not None:
        added = _attention._bias(_with_heads(added, q), q, k)
    problem = ("bhsd", 0, 0, mask, left, right, False)
    o, _ = _attention._attention(q, k, v, added, None, None, problem, p, scale)
    return o.transpose(1, 2)


def _with_heads(bias, q):
    """A tensor bias as [batch, heads, queries, keys]."""
    if not bias.is_floating_point():
        _inputs.refuse(f"attn_bias is {bias.dtype}: it is added to scores")
    if bias.dim() == 3:
        bias = bias.unsqueeze(1)
    if bias.dim() == 5:
        bias = bias.flatten(1, 2)
    heads = math.prod(q.shape[1:-2])
    if bias.dim() != 4 or bias.shape[1] != heads:
        _inputs.refuse(
            f"attn_bias has the shape {list(bias.shape)}, and query {heads} heads"
        )
    return bias


def _window(bias, shift):
    """How many keys to the left and to the right a query sees; -1: all. ``shift``: by
    how many keys the bottom right corner is right of the diagonal."""
    if type(bias).__name__ == "LocalAttentionFromBottomRightMask":
        # Where no mask is causal, Kiln counts from the diagonal of the upper left.
        left, right = bias.window_left - shift, bias.window_right + shift
        if min(left, right) < 0:
            raise NotCovered("kiln has no window that leaves out a query's own place")
        return left, right
    size = getattr(bias, "_window_size", None)
    return (-1 if size is None else size - 1), -1


def _longest(info):
    """How many tokens a block has at most, with those that do not count."""
    if not hasattr(info, "seqlen"):
        return info.max_seqlen
    begins = info.seqstart_py
    sizes = [end - begin for begin, end in zip(begins, begins[1:])]
    if any(size < length for size, length in zip(sizes, info.seqlen_py)):
        raise NotCovered("kiln has no blocks of keys that overlap or are not in order")
    return max(sizes)


def _packed(q, k, v, bias, p, scale):
    """One batch of sequences, one behind the other."""
    lengths = bias.q_seqinfo, bias.k_seqinfo
    for name, tensor, info in zip(("query", "key"), (q, k), lengths):
        if tensor.shape[:2] != (1, info.seqstart_py[-1]):
            _inputs.refuse(
                f"{name} has the shape {list(tensor.shape)}, and attn_bias the lengths "
                f"of one batch of {info.seqstart_py[-1]} tokens"
            )
    problem = (
        "thd",
        *(_longest(each) for each in lengths),
        _BLOCK_DIAGONAL[type(bias).__name__],
        *_window(bias, 0),
        False,
    )
    ends = (each.seqstart for each in lengths)
    that_count = None, getattr(bias.k_seqinfo, "seqlen", None)
    packed = (q[0], k[0], v[0], None, *ends, problem, p, scale, that_count)
    return _attention._attention(*packed)[0]
