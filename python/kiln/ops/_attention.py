"""Scaled dot-product attention: kiln/ops/attention.h."""

from __future__ import annotations

import math

import torch

from .._checks import ATTENTION_BIASES as _BIASES
from .._checks import ATTENTION_MASKS as _MASKS
from .._checks import missing_dimensions
from . import _inputs
from ._define import Operation, may_need_gradient
from ._launch import copied, dense, elements_overlap
from ._types import Constant, Int32, Tensor


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Constant | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window_size: tuple[int, int] = (-1, -1),
    alibi: bool = False,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """torch's scaled_dot_product_attention of [batch, heads, sequence, dim]: by cuDNN, if
    it can, else by Kiln's kernel; kiln.explain() says why.

    Strides are free but for the last dimension, which is contiguous. attn_mask may have
    one element for all batches, heads or queries, and is not expanded, but over queries
    for its gradient; a bool mask is read as it is, by both passes, between which it must
    not change. A query that sees no key gives 0.
    dropout_p is rounded to a multiple of 1/65536, and what is kept is scaled by that.
    Tensors that do not begin at a multiple of 16 bytes, such as some slices, are computed
    by another kernel, with other roundings. Under autocast: its type.

    window_size: how many keys to the left and to the right of key i query i sees; -1: all.
    alibi: whether -slope * |i - j| is added to the score of query i and key j, with the
      slopes of Press et al., 2022. Excludes attn_mask.
    return_lse: also returns the logarithm of the sum of exp(score) over the keys that a
      query sees, float32 [batch, heads, queries]; -inf where it sees none. It has no
      gradient.

    Before a capture into a CUDA graph, call kiln.prepare(), or run both passes once.
    cuDNN's plans belong to a thread, and torch computes gradients in one of its own:
    kiln.prepare() prepares for the thread that calls it and for torch's. Capture in one
    of these.
    """
    if _inputs.may_autocast():
        q, k, v = _inputs.as_autocast(q, k, v)
    dims, of_k, of_v = _dimensions(q, k, v)
    if not 2 <= dims <= 4 or not dims == of_k == of_v:
        _inputs.refuse(
            f"q, k and v have {dims}, {of_k} and {of_v} dimensions: equally many, at "
            "most 4"
        )
    missing = 4 - dims
    if missing > 0:
        q, k, v = (t[(None,) * missing] for t in (q, k, v))
    if q.shape[1] != k.shape[1] and not enable_gqa:
        _inputs.refuse(
            f"q has {q.shape[1]} heads, and k {k.shape[1]}: that needs enable_gqa=True"
        )
    if attn_mask is not None:
        if is_causal:
            _inputs.refuse("attn_mask and is_causal=True exclude each other")
        if alibi:
            _inputs.refuse("attn_mask and alibi=True exclude each other")
        attn_mask = _bias(attn_mask, q, k)
    mask = _MASKS["causal"] if is_causal else _MASKS["none"]
    alibi, return_lse = _flags(alibi, return_lse)
    problem = ("bhsd", 0, 0, mask, *_window(window_size), alibi)
    o, lse = _attention(
        *(q, k, v, attn_mask, None, None, problem, dropout_p, scale), return_lse=return_lse
    )
    if missing > 0:
        o = o[(0,) * missing]
    return (o, lse[(0,) * missing]) if return_lse else o


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Int32,
    cu_seqlens_k: Int32,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    *,
    lengths_q: Int32 | None = None,
    lengths_k: Int32 | None = None,
    alibi: bool = False,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of packed sequences of different lengths: q is [tokens, heads, dim], k
    and v are [tokens, kv_heads, dim]. The heads of q may be two dimensions, [kv_heads,
    heads of each]: then q may lie beside k and v in one tensor, and is not copied.

    cu_seqlens_q, cu_seqlens_k: int32 [sequences + 1], the first token of each sequence,
      and the end. On a device, numbers outside the tensors are clamped to them; on the
      CPU, and not decreasing, they are checked.
    max_seqlen_q, max_seqlen_k: no sequence is longer. None: the number of tokens, which
      is right, but slower if there are several sequences.
    is_causal: query i sees the keys j <= i + keys - queries of its sequence (bottom
      right, as in flash-attn).
    window_size: how many keys to the left and to the right of key i (causal: of the last
      that it sees) query i sees; -1: all.
    lengths_q, lengths_k: int32 [sequences], how many of the tokens of each sequence count,
      the first ones; None: all. Of a batch that is padded on the left, [batch, length,
      heads, dim], the tokens are [batch * length, heads, dim], sequence i begins at
      i * length + padding[i], the end is batch * length, and the lengths are
      length - padding: nothing is copied.
    alibi: as of scaled_dot_product_attention(), from the last key that a query sees where
      is_causal.
    return_lse: as there, [sequences, heads, max_seqlen_q], and -inf behind the end of a
      sequence.

    A query that sees no key gives 0, and so do tokens that no sequence has: before the
    first, behind the last, beyond max_seqlen, or beyond its length. So are their gradients.
    dropout_p is rounded to a multiple of 1/65536, and what is kept is scaled by that.
    Tensors that do not begin at a multiple of 16 bytes, such as some slices, are computed
    by another kernel, with other roundings. Under autocast: its type.
    """
    if _inputs.may_autocast():
        q, k, v = _inputs.as_autocast(q, k, v)
    dims, of_k, of_v = _dimensions(q, k, v)
    if dims not in (3, 4) or not of_k == of_v == 3:
        _inputs.refuse(
            f"q, k and v have {dims}, {of_k} and {of_v} dimensions, and not 3, or q 4"
        )
    if max_seqlen_q is not None and type(max_seqlen_q) is not int:
        max_seqlen_q = _inputs.integer("max_seqlen_q", max_seqlen_q)
    if max_seqlen_k is not None and type(max_seqlen_k) is not int:
        max_seqlen_k = _inputs.integer("max_seqlen_k", max_seqlen_k)
    alibi, return_lse = _flags(alibi, return_lse)
    problem = (
        "thd",
        _longest("max_seqlen_q", max_seqlen_q, q.shape[0]),
        _longest("max_seqlen_k", max_seqlen_k, k.shape[0]),
        _MASKS["padding_causal_bottom_right"] if is_causal else _MASKS["padding"],
        *_window(window_size),
        alibi,
    )
    if _can_be_seen(cu_seqlens_q) and _can_be_seen(cu_seqlens_k):
        _check_begins("cu_seqlens_q", cu_seqlens_q, q.shape[0])
        _check_begins("cu_seqlens_k", cu_seqlens_k, k.shape[0])
    tensors = (q, k, v, None, cu_seqlens_q, cu_seqlens_k)
    lengths = (lengths_q, lengths_k)
    o, lse = _attention(*tensors, problem, dropout_p, scale, lengths, return_lse)
    o = o if dims == 3 else o.unflatten(1, q.shape[1:3])
    return (o, lse) if return_lse else o


def _longest(name, length, tokens):
    if length is None:
        return tokens
    if length < 0:
        _inputs.refuse(f"{name} is {length}: it is the length of the longest sequence")
    return min(max(length, 1), tokens) if tokens > 0 else length


def _can_be_seen(begins):
    """By the host: what is on a device would have to be waited for."""
    return (
        type(begins) is torch.Tensor
        and begins.device.type == "cpu"
        and begins.dtype == torch.int32
        and begins.dim() == 1
        and not torch.compiler.is_compiling()
    )


def _check_begins(name, begins, tokens):
    values = begins.tolist()
    if any(a > b for a, b in zip([0, *values], [*values, tokens])):
        _inputs.refuse(
            f"{name} is {values!r:.80}, for {tokens} tokens: the first token of each "
            "sequence, and the end; no value is less than its predecessor"
        )


def _dimensions(q, k, v):
    try:
        return q.dim(), k.dim(), v.dim()
    except AttributeError:
        _inputs.only_tensors(q=q, k=k, v=v)
        raise


def _flags(alibi, return_lse):
    if type(alibi) is type(return_lse) is bool:
        return alibi, return_lse
    return _inputs.flag("alibi", alibi), _inputs.flag("return_lse", return_lse)


def _window(size):
    if type(size) is tuple and len(size) == 2 and type(size[0]) is type(size[1]) is int:
        return size
    try:
        left, right = size
    except (TypeError, ValueError):
        _inputs.refuse(f"window_size is {size!r:.80}: it is two integers")
    return tuple(_inputs.integer("window_size", each) for each in (left, right))


def _attention(
    q,
    k,
    v,
    bias,
    cu_q,
    cu_k,
    problem,
    dropout,
    scale,
    lengths=(None, None),
    return_lse=False,
):
    """o, and the statistics where they are asked for or a gradient may be. q has one
    dimension of heads, or one of groups and one of the heads that share a head of k and
    v; o has one. lengths: of queries and of keys, as of varlen_attention()."""
    if type(dropout) is not float:
        dropout = _inputs.number("dropout_p", dropout)
    if not 0 <= dropout <= 1:
        _inputs.refuse(f"dropout_p is {dropout}: it is a probability")
    rng = None
    if dropout > 0:  # seed and offset, from torch's generator
        rng = torch.randint(0, 2**31, (2,), dtype=torch.int64, device=q.device)
    is_added = bias is not None and bias.is_floating_point()
    if is_added and may_need_gradient([bias]):  # its gradient has each query
        bias = bias.expand(-1, -1, q.shape[-2], -1).contiguous()
    inputs = [t for t in (q, k, v, bias) if t is not None]
    stats = return_lse or may_need_gradient(inputs)
    if scale is not None and type(scale) is not float:
        scale = _inputs.number("scale", scale)
    tensors = (q, k, v, bias, cu_q, cu_k, *lengths, rng)
    o, lse = attention_fwd(*tensors, *problem, dropout, scale, stats)
    if return_lse and q.shape[-1] * v.shape[-1] == 0:
        _inputs.refuse("return_lse=True needs heads with elements")
    if return_lse and (q.numel() == 0 or k.numel() == 0):
        lse = torch.full_like(lse, float("-inf"))
    return o, lse


def _bias(mask, q, k):
    """The mask as what is added to the scores, or bool, [batch, heads, queries, keys], of
    which the first three may be 1."""
    _inputs.only_tensors(attn_mask=mask)
    if not mask.requires_grad:
        mask = _not_expanded(mask)
    is_boolean = mask.dtype == torch.bool
    if not is_boolean and not mask.is_floating_point():
        _inputs.refuse(f"attn_mask is {mask.dtype}: it is bool, or of the type of q")
    shape = (q.shape[0], math.prod(q.shape[1:-2]), q.shape[-2], k.shape[-2])
    extra = missing_dimensions("attn_mask", mask.shape, shape)
    mask = mask[(None,) * extra].to(mask.dtype if is_boolean else q.dtype)
    return mask.expand(*mask.shape[:3], shape[3])


# ---- The operation


def _is_usable(tensor):
    return (tensor.shape[-1] <= 1 or tensor.stride(-1) == 1) and not elements_overlap(
        tensor
    )


def _readable(name, tensor):
    if _is_usable(tensor):
        return tensor
    return copied(f"attention.{name}", tensor, tensor.new_empty(tensor.shape))


def _not_expanded(mask):
    """With one element in each dimension but the last in which elements lie 0 apart."""
    for i, by in enumerate(mask.stride()[:-1]):
        if by == 0 and mask.shape[i] > 1:
            mask = mask.narrow(i, 0, 1)
    return mask


def _readable_bias(bias):
    if bias is None:
        return None
    bias = _not_expanded(bias)
    if bias.shape[-1] > 1 and bias.stride(-1) != 1:
        return dense("attention.attn_mask", bias)
    return bias


def _gradient_like(tensor, layout):
    """A gradient has the strides of its tensor, as _readable() returns it."""
    if not _is_usable(tensor):
        return tensor.new_empty(tensor.shape)
    strides = (_with_rows_apart(tensor) if layout == "thd" else tensor).stride()
    return tensor.new_empty_strided(tensor.shape, strides)


def _with_rows_apart(tensor):
    """One token has any stride in torch, and here one as if there were several: how many
    there are is known to the device."""
    if tensor.shape[0] != 1:
        return tensor
    inner = tensor.stride()[1:]
    extent = 1 + sum((size - 1) * by for size, by in zip(tensor.shape[1:], inner))
    return tensor.as_strided(tensor.shape, (max(extent, tensor.stride(0)), *inner))


def _output(q, v, layout):
    """o: in the order of q, so that heads that were split from a dimension can be joined
    again without a copy."""
    if layout == "thd":
        return q.new_empty(q.shape[0], math.prod(q.shape[1:-1]), v.shape[-1])
    batch, *heads, rows, _ = q.shape
    heads = math.prod(heads)
    if q.stride(-3) < q.stride(-2):
        return q.new_empty(batch, rows, heads, v.shape[-1]).transpose(1, 2)
    return q.new_empty(batch, heads, rows, v.shape[-1])


# fmt: off
def _outputs(
    q, k, v, bias, cu_seqlens_q, cu_seqlens_kv, lengths_q, lengths_kv, rng, layout, longest_q,
    longest_kv, mask, window_left, window_right, alibi, dropout, scale, with_stats,
):
    # fmt: on
    o = _output(q, v, layout)
    stats = 0
    if with_stats:
        packed = layout == "thd"
        stats = (cu_seqlens_q.shape[0] - 1, o.shape[1], longest_q) if packed else o.shape[:3]
    return o, q.new_empty(stats, dtype=torch.float32)


# fmt: off
def _changed(
    q, k, v, bias, cu_seqlens_q, cu_seqlens_kv, lengths_q, lengths_kv, rng, layout, alibi
):
    # fmt: on
    q, k, v = _readable("q", q), _readable("k", k), _readable("v", v)
    if layout == "thd":
        q, k, v = _with_rows_apart(q), _with_rows_apart(k), _with_rows_apart(v)
    kind = "alibi" if alibi else "none"
    if bias is not None:
        kind = "boolean" if bias.dtype == torch.bool else "post_scale"
    seed, offset = (None, None) if rng is None else (rng[:1], rng[1:])
    return (
        *(q, k, v),
        dense("attention.cu_seqlens_q", cu_seqlens_q),
        dense("attention.cu_seqlens_k", cu_seqlens_kv),
        dense("attention.lengths_q", lengths_q),
        dense("attention.lengths_k", lengths_kv),
        *(seed, offset, _BIASES[kind]),
    )


# What the library's function gets in place of or beside what the schema names.
_CHANGE = (
    _changed,
    (
        *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv", "lengths_q", "lengths_kv"),
        *("dropout_seed", "dropout_offset", "bias_kind"),
    ),
)


def _of_forward(stats, bias, with_stats):
    return stats if with_stats else None, _readable_bias(bias)


def _of_backward(grad_bias, grad_o, o, bias, of_bias):
    if of_bias:
        bias = dense("attention.attn_mask", bias)
    else:
        bias, grad_bias = _readable_bias(bias), None
    deterministic = torch.are_deterministic_algorithms_enabled()
    return grad_bias, _with_strides_of(grad_o, o), bias, deterministic


def _save(ctx, inputs, output):
    args = attention_fwd.by_name(inputs)
    ctx.has_gradient = args.pop("with_stats")
    o, stats = output
    ctx.save_for_backward(o, stats, *map(args.pop, attention_fwd.tensors))
    ctx.problem = args
    ctx.mark_non_differentiable(stats)
    ctx.set_materialize_grads(False)


def _gradient(ctx, grad_o, *_):
    if not ctx.has_gradient:
        _inputs.refuse("attention_fwd was called without stats, so it has no gradient")
    o, stats, *saved = ctx.saved_tensors
    of_bias = attention_fwd.by_name(ctx.needs_input_grad)["bias"]
    tensors = dict(zip(attention_fwd.tensors, saved, strict=True))
    q, k, v, bias = attention_bwd.named(
        grad_o=grad_o, o=o, stats=stats, **tensors, **ctx.problem, of_bias=of_bias
    )
    return attention_fwd.gradients(q=q, k=k, v=v, bias=bias if of_bias else None)


def _with_strides_of(tensor, like):
    """The gradient of an output has the strides of the output."""
    if all(
        a == b for a, b, size in zip(tensor.stride(), like.stride(), like.shape) if size > 1
    ):
        return tensor
    return copied("attention.do", tensor, torch.empty_like(like))


# fmt: off
def _bwd_outputs(
    grad_o, o, stats, q, k, v, bias, cu_seqlens_q, cu_seqlens_kv, lengths_q, lengths_kv, rng,
    layout, longest_q, longest_kv, mask, window_left, window_right, alibi, dropout, scale,
    of_bias,
):
    # fmt: on
    return (
        *(_gradient_like(each, layout) for each in (q, k, v)),
        q.new_empty(bias.shape if of_bias else 0),
    )


_PROBLEM = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? cu_seqlens_q, Tensor? cu_seqlens_kv,"
    " Tensor? lengths_q, Tensor? lengths_kv, Tensor? rng, str layout, SymInt longest_q,"
    " SymInt longest_kv, int mask, int window_left, int window_right, bool alibi,"
    " float dropout, float? scale"
)
_GRADIENTS = ("grad_q", "grad_k", "grad_v", "grad_bias", "grad_o")
# layout "bhsd" or "thd"; mask: KILN_ATTENTION_MASK_... of kiln/c.h;
# rng: the seed and the offset of dropout, int64. Without stats there is no gradient.
attention_fwd = Operation(
    f"attention_fwd({_PROBLEM}, bool with_stats) -> (Tensor o, Tensor stats)",
    outputs=_outputs,
    launch="attention_forward",
    changes=[_CHANGE, (_of_forward, ("stats", "bias"))],
    own=("rng", "alibi", "with_stats"),
    unused=("capture", "deterministic", *_GRADIENTS),
    save=_save,
    backward=_gradient,
    reads=3,
)
attention_bwd = Operation(
    f"attention_bwd(Tensor grad_o, Tensor o, Tensor stats, {_PROBLEM}, bool of_bias)"
    " -> (Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_bias)",
    outputs=_bwd_outputs,
    launch="attention_backward",
    changes=[_CHANGE, (_of_backward, ("grad_bias", "grad_o", "bias", "deterministic"))],
    own=("rng", "alibi", "of_bias"),
    unused=("capture",),
    reads=6,
)
