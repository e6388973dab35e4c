"""Settings and arguments of plain Python: what is no text or no whole number is refused by its name."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

from .errors import InvalidArgument


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}, and not a text")
    return value


def path(name: str, value: Any) -> str:
    return text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def several(name: str, value: Any, one: Callable[[str, Any], str] = text) -> list[str]:
    """One, which is not taken for its letters, or several; none of None."""
    if value is None:
        return []
    if isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__"):
        return [one(name, value)]
    return [one(name, each) for each in value]


def whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {value!r}, and not a whole number") from None
