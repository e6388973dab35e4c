"""What the operations for torch and for JAX refuse alike, by names and shapes."""

from __future__ import annotations

import operator

from . import errors
from ._library import enumerators

_ENUMERATIONS = {
    "CASTINGS": "rms_norm_casting",
    "ROPE_STYLES": "rope_style",
    "ATTENTION_MASKS": "attention_mask",
    "ATTENTION_BIASES": "attention_bias",
    "SOFTMAX_MASKS": "softmax_mask",
}


def __getattr__(name: str) -> dict[str, int]:
    """Words and values. Made when they are asked for: the library is opened then, and not
    when kiln.jax is imported."""
    if name not in _ENUMERATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = enumerators(_ENUMERATIONS[name])
    return globals()[name]


def refuse(message: str):
    raise errors.InvalidArgument(message)


def choice(name: str, value, possible):
    """possible[value]; refuses others."""
    try:
        if value in possible:
            return possible[value]
    except TypeError:  # a list, say, which is no key
        pass
    refuse(f"{name} is {value!r}; possible: {', '.join(map(repr, possible))}")


def check_no_axis(scale, dims: int, is_plain: bool) -> None:
    """Refuses what is the dimension for torch.softmax() and jax.nn.softmax(): softmax(x,
    -1). The last one is what Kiln takes, so 1 of two dimensions is right either way. With
    a mask or causal, which torch has not, only what is below 0 is meant as one."""
    if isinstance(scale, (float, bool)):
        return
    try:  # of NumPy, torch and JAX as well
        number = operator.index(scale)
    except TypeError:
        return
    end = dims if is_plain else 0
    if -dims <= number < end and (number, dims) != (1, 2):
        refuse(
            f"scale is {number}, an int, which may be meant as the dimension: softmax(x) "
            f"is over the last dimension; for a scale write {float(number)}"
        )


def check_layout_of_rope(q, cos) -> None:
    """Refuses shapes of q and cos that must be [batch, heads, sequence, dim], where none
    was named and [batch, sequence, heads, dim] is taken."""
    if len(q) == 4 and len(cos) > 1 and cos[-2] == q[2] != q[1]:
        refuse(
            f"q has the shape {list(q)}, and cos {list(cos)}: as many positions as q has "
            "in its third dimension, which are the heads of [batch, sequence, heads, dim]: "
            'say layout="bhsd", or shorten cos and sin to the positions of q'
        )


def missing_dimensions(name: str, shape, to) -> int:
    """How many dimensions are put before those of ``shape`` to broadcast it ``to`` that
    shape; refuses what cannot be."""
    extra = len(to) - len(shape)
    if extra < 0 or any(of not in (1, all_) for of, all_ in zip(shape, to[extra:])):
        refuse(
            f"{name} has the shape {list(shape)}, which does not broadcast to "
            f"{list(to)}"
        )
    return extra


def normalized_dimensions(x, weight) -> int:
    """How many dimensions of the shape x a norm takes together; weight: its shape, or
    None."""
    if weight is None:
        if len(x) == 0:
            refuse("x has no dimension")
        return 1
    dims = len(weight)
    if dims == 1 and len(x) > 0 and x[-1] == weight[0]:  # without a slice
        return 1
    if dims == 0 or dims > len(x) or x[len(x) - dims :] != weight:
        refuse(
            f"weight has the shape {list(weight)}, and x, whose last dimensions it "
            f"has, {list(x)}"
        )
    return dims


def rotary_dim(head_dim: int, columns: int) -> int:
    """That of a table with so many columns, where rope() was told none."""
    if 2 * columns == head_dim:
        refuse(
            f"cos has {columns} columns for heads of {head_dim}: say "
            f"rotary_dim={head_dim} if two elements of a head share a column, or "
            f"rotary_dim={columns} if only the first {columns} elements are rotated"
        )
    return columns
