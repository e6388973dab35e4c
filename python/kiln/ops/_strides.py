"""Strides of tensors that operations read and write in place of contiguous ones."""

from __future__ import annotations


def elements_overlap(tensor) -> bool:
    """Whether two elements may share memory, as in an expanded tensor."""
    reached = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride < reached:
                return True
            reached += (size - 1) * stride
    return False
