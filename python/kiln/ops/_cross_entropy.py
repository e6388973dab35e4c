"""Cross-entropy loss: kiln/ops/cross_entropy.h."""

from __future__ import annotations

import torch

from . import _inputs
from ._define import Operation
from ._launch import like
from ._types import Int64, Tensor

_REDUCTIONS = {"mean": "mean", "sum": "sum", "none": "none"}


def cross_entropy(
    logits: Tensor,
    target: Int64,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch's cross_entropy of class indices, without weights of classes.

    logits: [classes], [rows, classes], or [rows, classes, ...], which is copied; rows
      may lie apart, as in a slice of padded classes.
    target: int64 or int32. One outside the classes gives nan.

    The loss has the type of the logits. Rows that do not begin at a multiple of 16 bytes
    may have other roundings. Under autocast: float32.
    """
    reduction = _inputs.choice("reduction", reduction, _REDUCTIONS)
    try:
        has_probabilities, dims = target.is_floating_point(), logits.dim()
    except AttributeError:
        _inputs.only_tensors(logits=logits, target=target)
        raise
    if type(ignore_index) is not int:
        ignore_index = _inputs.integer("ignore_index", ignore_index)
    if type(label_smoothing) is not float:
        label_smoothing = _inputs.number("label_smoothing", label_smoothing)
    if has_probabilities:
        _inputs.refuse(
            "target has probabilities of classes, and kiln's cross_entropy takes indices: "
            "use torch.nn.functional.cross_entropy"
        )
    if dims == 0 or logits.shape[min(1, dims - 1)] == 0:
        _inputs.refuse(f"logits have the shape {list(logits.shape)}: there is no class")
    if _inputs.may_autocast():
        (logits,) = _inputs.as_float32(logits)
    last = logits.movedim(1, -1) if dims > 2 else logits
    if target.shape != last.shape[:-1]:
        _inputs.refuse(
            f"target has the shape {list(target.shape)}, and logits, of "
            f"{list(logits.shape)}, need a target of {list(last.shape[:-1])}"
        )
    loss, _ = cross_entropy_fwd(last, target, ignore_index, label_smoothing)
    if reduction == "none":
        return loss.to(logits.dtype)
    total = loss.sum()
    if reduction == "mean":
        total = total / (target != ignore_index).sum()
    return total.to(logits.dtype)


def _outputs(logits, targets, ignored_index, smoothing):
    rows = logits.shape[:-1]
    loss = logits.new_empty(rows, dtype=torch.float32)
    return loss, logits.new_empty((*rows, 2), dtype=torch.float32)


def _save(ctx, inputs, output):
    logits, targets, *ctx.options = inputs
    _, saved = output
    ctx.save_for_backward(logits, saved, targets)
    ctx.mark_non_differentiable(saved)
    ctx.set_materialize_grads(False)


def _gradient(ctx, dloss, *_):
    # One number for each row: after a reduction it is the same, broadcast.
    row_scale = dloss.contiguous()
    dlogits = cross_entropy_bwd(row_scale, *ctx.saved_tensors, *ctx.options)
    return cross_entropy_fwd.gradients(logits=dlogits)


# The classes are the last dimension. Returns the loss of each row, and what the backward
# pass needs.
cross_entropy_fwd = Operation(
    "cross_entropy_fwd(Tensor logits, Tensor targets, int ignored_index,"
    " float smoothing) -> (Tensor loss, Tensor saved)",
    outputs=_outputs,
    launch="cross_entropy_forward",
    save=_save,
    backward=_gradient,
    unused=("lse",),
)
cross_entropy_bwd = Operation(
    "cross_entropy_bwd(Tensor row_scale, Tensor logits, Tensor saved, Tensor targets,"
    " int ignored_index, float smoothing) -> (Tensor dlogits)",
    outputs=lambda row_scale, logits, *_: like(logits),
    launch="cross_entropy_backward",
    unused=("scale",),
)
