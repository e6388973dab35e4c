"""Rotary position embedding: kiln/ops/rope.h."""

from __future__ import annotations

import torch

from .._checks import ROPE_STYLES, check_layout_of_rope
from .._checks import rotary_dim as rotary_dim_of
from . import _inputs
from ._define import Operation
from ._launch import copied, dense, elements_overlap
from ._types import Constant, Int32, Tensor

_LAYOUTS = {"bshd": 2, "bhsd": 1, "sbhd": 2, "thd": 1}  # where the heads are


def rope(
    q: Tensor,
    k: Tensor | None,
    cos: Constant,
    sin: Constant | None,
    style: str = "half",
    cu_seqlens: Int32 | None = None,
    layout: str | None = None,
    rotary_dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rotates q and k, whose heads may differ in number; k may be None. Returns both.

    cos, sin: a row for each position from 0 on, [positions, columns]; or, position ids
      being applied, for each token, [1 or batch, sequence, columns]. float32, or the
      type of q. There is no gradient of them. sin=None: cos holds angles, in radians,
      as float32.
    style: which elements make a pair: "half" d and d + r / 2 (GPT-NeoX, Llama),
      "interleaved" 2d and 2d + 1 (GPT-J), of the first r = rotary_dim of each head.
    cu_seqlens: int32 [sequences + 1], the first token of each packed sequence, and the
      end: q and k are [tokens, heads, dim] then.
    layout: else, the order of batch, sequence, heads and dim, "bshd", "bhsd" or "sbhd";
      any strides do. None: "bshd", and refused where cos shows that it is "bhsd".
    rotary_dim: r, of which cos has r or r / 2 columns. None: as many as cos has columns;
      refused if that is half a head, which may mean either.

    Under autocast: the type of q.
    """
    _inputs.choice("style", style, ROPE_STYLES)
    is_told = layout is not None or cu_seqlens is not None
    if layout is None:
        layout = "bshd"
    _inputs.choice("layout", layout, _LAYOUTS)
    if cu_seqlens is not None:
        layout = "thd"
    try:
        _check(q, k, cos, sin, layout)
        has_gradient = cos.requires_grad or (sin is not None and sin.requires_grad)
    except AttributeError:
        _inputs.only_tensors(("k", "sin"), q=q, k=k, cos=cos, sin=sin)
        raise
    if has_gradient:
        _inputs.refuse("cos or sin requires a gradient, and kiln's rope computes no gradient of them")
    if rotary_dim is None:
        rotary_dim = rotary_dim_of(q.shape[-1], cos.shape[-1])
    elif type(rotary_dim) is not int:
        rotary_dim = _inputs.integer("rotary_dim", rotary_dim)
    if not is_told:
        check_layout_of_rope(q.shape, cos.shape)
    if _inputs.may_autocast():
        q, k = _inputs.as_first(q, k)
    if cos.dim() == 3 and cos.shape[0] == 1:
        cos, sin = cos[0], None if sin is None else sin[0]
    q_out, k_out = rope_fwd(q, k, cos, sin, cu_seqlens, rotary_dim, style, layout)
    return q_out, None if k is None else k_out


def _check(q, k, cos, sin, layout):
    """Before a compiler traces the call; and of tensors without elements, which the
    library is never given."""
    heads = _LAYOUTS[layout]
    if q.dim() != len(layout):
        _inputs.refuse(f"q has the shape {list(q.shape)}, and the layout is {layout}")
    if k is not None and (
        k.dim() != q.dim()
        or k.shape[:heads] != q.shape[:heads]
        or k.shape[heads + 1 :] != q.shape[heads + 1 :]
    ):
        _inputs.refuse(
            f"k has the shape {list(k.shape)}: all but the heads are as in q, "
            f"{list(q.shape)}"
        )
    if sin is not None and sin.shape != cos.shape:
        _inputs.refuse(
            f"sin has the shape {list(sin.shape)}, and cos {list(cos.shape)}"
        )
    if cos.dim() == 2:
        return
    batch, sequence = layout.find("b"), layout.find("s")
    if cos.dim() != 3 or batch < 0:
        _inputs.refuse(
            f"cos has the shape {list(cos.shape)}: [positions, columns], or, not for "
            "packed sequences, [batch, sequence, columns]"
        )
    if cos.shape[0] not in (1, q.shape[batch]) or cos.shape[1] < q.shape[sequence]:
        _inputs.refuse(
            f"cos has the shape {list(cos.shape)}, and q, {layout}, {list(q.shape)}"
        )


def _outputs(q, k, *_):
    return torch.empty_like(q), q.new_empty(0) if k is None else torch.empty_like(k)


def _readable(name, tensor):
    """The library takes any strides, but not one element for all tokens."""
    if tensor is None or not elements_overlap(tensor):
        return tensor
    return copied(f"rope.{name}", tensor, tensor.new_empty(tensor.shape))


def _table(cos, sin):
    """[positions, columns], and how many positions further a sequence begins."""
    per_sequence = cos.shape[-2] if cos.dim() == 3 and cos.shape[0] > 1 else 0
    cos, sin = dense("rope.cos", cos), dense("rope.sin", sin)
    if cos.dim() > 2:
        cos, sin = (t if t is None else t.flatten(0, -2) for t in (cos, sin))
    return cos, sin, per_sequence


def _changed(q_out, k_out, q, k, cos, sin, cu_seqlens, style, layout):
    _check(q, k, cos, sin, layout)
    pairs = [
        (out, _readable(of, tensor))
        for of, out, tensor in (("q", q_out, q), ("k", k_out, k))
        if tensor is not None and tensor.numel() > 0
    ]
    if not pairs:
        return None
    starts = None
    cos, sin, per_sequence = _table(cos, sin)
    if per_sequence > 0:
        ends = cos.shape[0]
        starts = torch.arange(0, ends, per_sequence, dtype=torch.int32, device=q.device)
    table = (cos, None, None) if sin is None else (None, cos, sin)
    first, second = (*pairs, (None, None))[:2]
    cu_seqlens = dense("rope.cu_seqlens", cu_seqlens)
    return *first, *second, *table, starts, cu_seqlens, ROPE_STYLES[style]


_CHANGED = (
    *("q_out", "q_in", "k_out", "k_in", "table_angles", "table_cos", "table_sin"),
    *("starts", "cu_seqlens", "style"),
)
_BINDING = {
    "own": ("q", "k", "cos", "sin"),
    "unused": ("start",),
    "changes": [(_changed, _CHANGED)],
}


def _save(ctx, inputs, output):
    _, k, cos, sin, cu_seqlens, *ctx.rest = inputs
    ctx.has_k = k is not None
    ctx.save_for_backward(cos, sin, cu_seqlens)


def _gradient(ctx, dq, dk):
    dk = dk if ctx.has_k else None
    dq, dk = rope_bwd(dq, dk, *ctx.saved_tensors, *ctx.rest)
    return rope_fwd.gradients(q=dq, k=dk if ctx.has_k else None)


_PARAMETERS = (
    "Tensor cos, Tensor? sin, Tensor? cu_seqlens, int rotary_dim, str style, str layout"
)
# Without k, its output has no elements.
rope_fwd = Operation(
    f"rope_fwd(Tensor q, Tensor? k, {_PARAMETERS}) -> (Tensor q_out, Tensor k_out)",
    outputs=_outputs,
    launch="rope_forward",
    **_BINDING,
    save=_save,
    backward=_gradient,
    reads=0,
)
rope_bwd = Operation(
    f"rope_bwd(Tensor q, Tensor? k, {_PARAMETERS}) -> (Tensor q_out, Tensor k_out)",
    outputs=_outputs,
    launch="rope_backward",
    **_BINDING,
    reads=0,
)
