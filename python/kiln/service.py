"""The one service of the process: its settings, its devices and its counts.

It is opened by the first call that needs it, and stays open until the process ends.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

from ._given import path, several, text, whole
from . import _files
from ._library import configured, library
from .errors import InvalidArgument

_One = Union[str, os.PathLike, int, float]


class _Kind(enum.IntEnum):  # KILN_SETTING_... of kiln/c.h
    TEXT = 0
    PATH = 1
    PATHS = 2
    NAMES = 3
    NUMBERS = 4
    NUMBER = 5
    SWITCH = 6
    SIZE = 7
    DURATION = 8


_SEPARATORS = {_Kind.PATHS: ":", _Kind.NAMES: ",", _Kind.NUMBERS: ","}


@dataclass(frozen=True)
class Setting:
    """A setting of configure() and the variable of the environment that it comes before. ``fallback`` is what holds
    without both."""

    name: str
    variable: str
    kind: str
    meaning: str
    fallback: str


def settings() -> list[Setting]:
    """What configure() takes."""
    return [
        Setting(str(name), str(variable), _Kind(kind).name.lower(), str(meaning), str(fallback))
        for name, variable, kind, meaning, fallback in library().settings()
    ]


def configure(**values: _One | Sequence[_One] | None) -> None:
    """Sets what the service is opened with: call it before the first use of a kernel. The program that
    kiln.warm() and the like run has these settings, too.

    settings() lists the names. A value is the text that the setting's variable has, ``cache_limit_bytes="10GiB"``,
    or of Python's type: a whole number of bytes, a number of seconds, True or False, a sequence for a list. What is
    None takes the value of its variable, ``KILN_CACHE_DIR`` and the like, or the default. An empty sequence takes
    the variable's place; that of ``seeds`` takes the place of what installed packages offer, too (entry points
    ``kiln.seeds``). Raises InvalidArgument for a name that is none, a value that is none of its kind, and if the service is open already;
    then nothing is set.
    """
    known = {setting.name: setting for setting in settings()}
    written = {}
    for name, value in values.items():
        if name not in known:
            raise InvalidArgument(f"{name} is no setting; there are {', '.join(known)}")
        if value is not None:
            written[name] = _written(name, _Kind[known[name].kind.upper()], value)
    if _files.is_open():
        raise InvalidArgument("configure() must come before the first use of a kernel or of files")
    library().configure([f"{name}={value}" for name, value in written.items()])
    configured.update(written)


def _written(name: str, kind: _Kind, value: Any) -> str:
    """The text of a value; what the text says is checked by the library."""
    if isinstance(value, str):
        return value
    if separator := _SEPARATORS.get(kind):
        one = _number if kind is _Kind.NUMBERS else path if kind is _Kind.PATHS else text
        items = several(name, value, one)
        if wrong := [item for item in items if separator in item]:
            raise InvalidArgument(f"{name} has {wrong[0]!r}, and {separator!r} separates its elements")
        return separator.join(items)
    if kind is _Kind.DURATION:
        try:
            is_number = math.isfinite(value)
        except TypeError:
            is_number = False
        if not is_number:
            raise InvalidArgument(f"{name} is {value!r}, and not a number of seconds")
        return f"{round(value * 1000)}ms"
    if kind in (_Kind.NUMBER, _Kind.SWITCH):
        return _number(name, value)
    if kind is _Kind.PATH:
        return path(name, value)
    return f"{whole(name, value)}B" if kind is _Kind.SIZE else text(name, value)


def _number(name: str, value: Any) -> str:
    return str(whole(name, value))


def variables() -> dict[str, str]:
    """What configure() was given, for the environment of the kiln program."""
    known = settings() if configured else []  # which opens the library
    return {each.variable: configured[each.name] for each in known if each.name in configured}


@dataclass(frozen=True)
class Device:
    """A device of the CUDA driver. ``ordinal`` is what torch calls its index."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    uuid: str
    pci_id: str
    memory_bytes: int
    multiprocessors: int


def devices() -> list[Device]:
    """All devices, by ordinal; empty without a driver or devices."""
    found = []
    for info in library().devices():
        fields = {str(name): value for name, value in info.items()}
        fields["capability"] = tuple(fields["capability"])
        fields |= {name: str(fields[name]) for name in ("name", "uuid", "pci_id")}
        found.append(Device(**fields))
    return found


def statistics() -> dict[str, int]:
    """How often, since the service was opened, kernels were found in memory, found on disk, compiled,
    waited for, not stored, loaded on a device, could not be had, were found in seeds and on remotes."""
    return {str(name): count for name, count in library().statistics().items()}
