"""GPT-NeoX: what differs from the kernels that it shares with others.

Its gradient of softmax is computed in place: the backward functions return ``dy``
itself, into which the result is copied. Kiln computes out of place, so at the peak
there is one more tensor of scores than with the original. A row that is masked as a
whole has equal weights, 1 / sk, and the gradient that belongs to them.
"""

from __future__ import annotations

import threading

import torch

from .. import errors
from .._prepare import ordinal_of, prepare
from ..ops import _softmax
from . import _megatron, _unfused
from ._own_path import is_strict, unfused, warn_once

WARM_UP_SECONDS = 300.0


def _in_place(dy, dx):
    # The original copies a dy that is not contiguous, too.
    return dy.copy_(dx) if dy.is_contiguous() else dx


@unfused(_unfused.uniform_masked_softmax)
def masked_forward(x, mask, scale):
    """A masked score counts as -inf, and not as -10000: it never has weight beside one
    that is seen, however low that is."""
    mask = _softmax._checked_mask(mask, x)
    return _softmax.softmax_fwd(x, float(scale), mask, False, True)


@unfused(lambda dy, y, scale: _in_place(dy, _unfused.softmax_gradient(dy, y, scale)))
def masked_backward(dy, y, scale):
    return _in_place(dy, _megatron.masked_backward(dy, y, scale))


@unfused(lambda dy, y, scale: _in_place(dy, _unfused.softmax_gradient(dy, y, scale)))
def causal_backward(dy, y, scale):
    return _in_place(dy, _megatron.causal_backward(dy, y, scale))


# ---- megatron.fused_kernels.load(): instead of nvcc, a warm-up


def load(*args, **named) -> None:
    """Builds or loads the kernels that the framework's arguments, which it is called
    with, ask for or leave open. Nothing is compiled by nvcc, no file is waited for, and
    other ranks find what one has built.

    Returns after at most WARM_UP_SECONDS, without an error: what is not ready then is
    built by the first call that needs it. KILN_PYTHON_STRICT=1 raises kiln.Error.
    """
    asked = next(iter((*args, *named.values())), None)
    failed: list[errors.Error] = []
    # torch's current device is the thread's: the other one is told.
    arguments = (list(_wanted(asked)), ordinal_of(None), failed)
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


def _wanted(args):
    """(operation, shapes, options) for prepare(). A kernel depends on the type and on
    the length of a row, not on the other sizes."""
    dtype = getattr(args, "params_dtype", None)
    dtypes = [dtype] if dtype else [torch.bfloat16, torch.float16]
    keys = getattr(args, "seq_length", None) or 2048
    for dtype in dtypes:
        if dtype != torch.float32:  # which it does not fuse
            if _is_wanted(args, "scaled_upper_triang_masked_softmax_fusion"):
                yield "softmax", [(1, 1, keys)], {"dtype": dtype, "causal": True}
            if _is_wanted(args, "scaled_masked_softmax_fusion"):
                scores = (1, 1, 1, keys)
                masked = {"mask": scores, "masked_row": "uniform"}
                yield "softmax", [scores], {"dtype": dtype, **masked}
        if _is_wanted(args, "rope_fusion"):
            yield from _ropes(dtype)


def _is_wanted(args, name) -> bool:
    """What the arguments do not say, they may want."""
    return getattr(args, name, None) is not False


def _ropes(dtype):
    head, table = (1, 1, 1, 64), (1, 64)
    options = {"dtype": dtype, "layout": "sbhd", "rotary_dim": 64}
    for tables in ([table, None], [table, table]):
        for entries in {torch.float32, dtype} if tables[1] else [torch.float32]:
            types = {"cos": entries, "sin": entries}
            yield "rope", [head, None, *tables], {**options, "dtypes": types}
