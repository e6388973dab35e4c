"""The hints of kiln.ops' functions. kiln.prepare() makes tensors by them."""

from __future__ import annotations

import typing
from typing import Annotated, NamedTuple

import torch


class Kind(NamedTuple):
    """Which tensors a parameter takes."""

    dtype: torch.dtype | None = None  # None: that of the call
    has_gradient: bool = True


Tensor = Annotated[torch.Tensor, Kind()]
Constant = Annotated[torch.Tensor, Kind(has_gradient=False)]
Bool = Annotated[torch.Tensor, Kind(torch.bool, False)]
Int32 = Annotated[torch.Tensor, Kind(torch.int32, False)]
Int64 = Annotated[torch.Tensor, Kind(torch.int64, False)]


def kinds_of(function) -> dict[str, Kind]:
    """Of its parameters that are tensors."""
    kinds = {}
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        for each in (hint, *typing.get_args(hint)):
            for kind in getattr(each, "__metadata__", ()):
                kinds[name] = kind
    kinds.pop("return", None)
    return kinds
