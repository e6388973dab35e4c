"""Cross-entropy loss: kiln/ops/cross_entropy.h."""

from __future__ import annotations

import torch

from . import _inputs
from ._define import Operation
from ._launch import dense, dense_rows, function, like

_REDUCTIONS = {"mean": "mean", "sum": "sum", "none": "none"}


def cross_entropy(
    logits, target, ignore_index=-100, label_smoothing=0.0, reduction="mean"
):
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
            f"{list(logits.shape)}, need one of {list(last.shape[:-1])}"
        )
    loss, _ = cross_entropy_fwd(last, target, ignore_index, label_smoothing)
    if reduction == "none":
        return loss.to(logits.dtype)
    total = loss.sum()
    if reduction == "mean":
        total = total / (target != ignore_index).sum()
    return total.to(logits.dtype)


_forward_kernel = function(
    "cross_entropy_forward",
    *("loss", "saved", "logits", "targets", "ignored_index", "smoothing"),
    unused=("lse",),
)
_backward_kernel = function(
    "cross_entropy_backward",
    *("dlogits", "logits", "saved", "targets", "row_scale", "ignored_index", "smoothing"),
    unused=("scale",),
)


def _outputs(logits, target, ignore_index, label_smoothing):
    rows = logits.shape[:-1]
    loss = logits.new_empty(rows, dtype=torch.float32)
    return loss, logits.new_empty((*rows, 2), dtype=torch.float32)


def _forward(outputs, args):
    loss, saved = outputs
    logits, target, ignore_index, label_smoothing = args
    _forward_kernel(
        *(loss, saved),
        dense_rows("cross_entropy.logits", logits),
        dense("cross_entropy.target", target),
        *(ignore_index, label_smoothing),
    )


def _save(ctx, inputs, output):
    logits, target, ctx.ignore_index, ctx.label_smoothing = inputs
    _, saved = output
    ctx.save_for_backward(logits, saved, target)
    ctx.mark_non_differentiable(saved)
    ctx.set_materialize_grads(False)


def _gradient(ctx, dloss, *_):
    logits, saved, target = ctx.saved_tensors
    dlogits = cross_entropy_bwd(
        dloss, logits, saved, target, ctx.ignore_index, ctx.label_smoothing
    )
    return dlogits, None, None, None


def _backward(dlogits, args):
    dloss, logits, saved, target, ignore_index, label_smoothing = args
    _backward_kernel(
        dense_rows("cross_entropy.dlogits", dlogits),
        dense_rows("cross_entropy.logits", logits),
        saved,
        dense("cross_entropy.target", target),
        # One number for each row: after a reduction it is the same, broadcast.
        dloss.contiguous(),
        *(ignore_index, label_smoothing),
    )


# The classes are the last dimension. Returns the loss of each row, and what the backward
# pass needs.
cross_entropy_fwd = Operation(
    "cross_entropy_fwd(Tensor logits, Tensor target, int ignore_index,"
    " float label_smoothing) -> (Tensor, Tensor)",
    outputs=_outputs,
    launch=_forward,
    save=_save,
    backward=_gradient,
)
cross_entropy_bwd = Operation(
    "cross_entropy_bwd(Tensor dloss, Tensor logits, Tensor saved, Tensor target,"
    " int ignore_index, float label_smoothing) -> Tensor",
    outputs=lambda dloss, logits, *_: like(logits),
    launch=_backward,
)
