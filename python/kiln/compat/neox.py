"""GPT-NeoX: what differs from the kernels that it shares with others.

Its gradient of softmax is computed in place: the backward functions return ``dy``
itself, into which the result is copied. Kiln computes out of place, so at the peak
there is one more tensor of scores than with the original. A row that is masked as a
whole has equal weights, 1 / sk, and the gradient that belongs to them.
"""

from __future__ import annotations

from ..ops import _softmax
from . import _megatron, _unfused
from ._own_path import unfused


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
