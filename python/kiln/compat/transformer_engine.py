"""TransformerEngine: rope and the cross-entropy loss. Its softmax is Megatron-LM's.

Only functions of an installed TransformerEngine are replaced. What Kiln has not,
context parallelism and start positions of rope, and a loss of classes that are divided
among ranks, is left to it.
"""

from __future__ import annotations

import torch

from .. import errors
from ..ops import _cross_entropy, _rope
from . import _megatron
from ._own_path import OwnPath


def apply_rotary_pos_emb(
    t,
    freqs,
    tensor_format="sbhd",
    start_positions=None,
    interleaved=False,
    fused=False,
    cu_seqlens=None,
    cp_size=1,
    cp_rank=0,
):
    if not fused:
        raise OwnPath
    if start_positions is not None or cp_size > 1:
        raise errors.Unavailable("it has start positions, or context parallelism")
    is_packed = tensor_format == "thd"
    out, _ = _rope.rope_fwd(
        *(t, None, _megatron.table_of(freqs.float()), None),
        *(cu_seqlens if is_packed else None, freqs.shape[-1]),
        *("interleaved" if interleaved else "half", tensor_format),
    )
    return out.contiguous()  # kiln's has the order of t in memory


def parallel_cross_entropy(
    inp,
    target,
    label_smoothing=0.0,
    reduce_loss=False,
    dist_process_group=None,
    ignore_idx=-100,
    is_cg_capturable=False,
    *,
    overwrite_input=False,
    _input=None,
):
    """The loss of each token of [batch, sequence, classes], or the mean of those that
    are not ignored, 0 if all are: float32. ``_input`` is an old name of ``inp``, which
    ``overwrite_input`` lets a callee overwrite: kiln never does."""
    inp = inp if _input is None else _input
    if dist_process_group is not None:
        if torch.distributed.get_world_size(dist_process_group) > 1:
            raise errors.Unavailable("its classes are divided among ranks")
    target = target.reshape(inp.shape[:-1])
    loss, _ = _cross_entropy.cross_entropy_fwd(
        inp, target, ignore_idx, float(label_smoothing)
    )
    if not reduce_loss:
        return loss
    return loss.sum() / (target != ignore_idx).sum().clamp(min=1)
