"""megatron.fused_kernels.load(): instead of nvcc, a warm-up."""

from __future__ import annotations

import threading

import torch

from .. import errors
from .._prepare import ordinal_of, prepare
from ._own_path import is_strict, warn_once

WARM_UP_SECONDS = 300.0


def load_neox(*args, **named) -> None:
    """Builds or loads the kernels that the framework's arguments, which it is called
    with, ask for or leave open. Nothing is compiled by nvcc, no file is waited for, and
    other ranks find what one has built.

    Returns after at most WARM_UP_SECONDS, without an error: what is not ready then is
    built by the first call that needs it. KILN_PYTHON_STRICT=1 raises kiln.Error.
    """
    _load(_wanted_by_neox, args, named)


def load_megatron(*args, **named) -> None:
    """load_neox() for Megatron-LM and Megatron-DeepSpeed."""
    _load(_wanted_by_megatron, args, named)


def _load(wanted_by, args, named) -> None:
    asked = next(iter((*args, *named.values())), None)
    failed: list[errors.Error] = []
    # torch's current device is the thread's: the other one is told.
    arguments = (list(wanted_by(asked)), ordinal_of(None), failed)
    thread = threading.Thread(target=_warm_up, args=arguments, daemon=True)
    thread.start()
    thread.join(WARM_UP_SECONDS)
    name = "megatron.fused_kernels.load"
    if failed and is_strict():
        raise failed[0]
    if failed:
        warn_once(name, f"kiln could not prepare its kernels: {failed[0]}")
    elif thread.is_alive():
        warn_once(name, "kiln builds its kernels while the program goes on")


def _warm_up(wanted, device, failed) -> None:
    for operation, shapes, options in wanted:
        try:
            prepare(operation, *shapes, device=device, **options)
        except errors.Error as error:
            failed.append(error)
            return


# ---- (operation, shapes, options) for prepare(). A kernel depends on the type and on
# the length of a row, not on the other sizes. float32 is not fused.


def _wanted_by_neox(args):
    for dtype in _types(args):
        if dtype != torch.float32:
            if _is_wanted(args, "scaled_upper_triang_masked_softmax_fusion"):
                yield _softmax(args, dtype, causal=True)
            if _is_wanted(args, "scaled_masked_softmax_fusion"):
                yield _masked_softmax(args, dtype, masked_row="uniform")
        if _is_wanted(args, "rope_fusion"):
            yield from _ropes(dtype)


def _wanted_by_megatron(args):
    for dtype in _types(args):
        if dtype != torch.float32 and _is_wanted(args, "masked_softmax_fusion"):
            yield _softmax(args, dtype, causal=True)
            yield _masked_softmax(args, dtype)
            yield _softmax(args, dtype)


def _types(args):
    dtype = getattr(args, "params_dtype", None)
    return [dtype] if dtype else [torch.bfloat16, torch.float16]


def _is_wanted(args, name) -> bool:
    """What the arguments do not say, they may want."""
    return getattr(args, name, None) is not False


def _scores(args):
    return (1, 1, 1, getattr(args, "seq_length", None) or 2048)


def _softmax(args, dtype, **options):
    return "softmax", [_scores(args)], {"dtype": dtype, **options}


def _masked_softmax(args, dtype, **options):
    return _softmax(args, dtype, mask=_scores(args), **options)


def _ropes(dtype):
    head, table = (1, 1, 1, 64), (1, 64)
    options = {"dtype": dtype, "layout": "sbhd", "rotary_dim": 64}
    for tables in ([table, None], [table, table]):
        for entries in {torch.float32, dtype} if tables[1] else [torch.float32]:
            types = {"cos": entries, "sin": entries}
            yield "rope", [head, None, *tables], {**options, "dtypes": types}
