"""The one service of the process: its settings, its devices and its counts.

It is opened by the first call that needs it, and stays open until the process ends.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from ._given import path, several, text, whole
from ._library import library
from .errors import InvalidArgument

_Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]]]
_ATTENTION = {"best": 0, "cudnn": 1, "kiln": 2}  # kiln/c.h
_PATHS = (
    *("cache_dir", "nvrtc", "cudnn", "driver", "worker", "record"),
    *("remote_keys", "remote_sign", "remote_auth", "remote_ca", "remote_certificate"),
)
_TEXTS = ("toolchain", "log_level", "remote", "remote_mode")
_NUMBERS = ("cache_limit_bytes", "precompiled_limit_bytes", "worker_memory_bytes", "jobs", "no_jit")
_LISTS = {"template_dirs": path, "disable": text, "seeds": path}

_VARIABLES = {  # of the environment, where they are not KILN_ and the name
    "cache_limit_bytes": "KILN_CACHE_SIZE",
    "precompiled_limit_bytes": "KILN_PCH_SIZE",
    "worker_memory_bytes": "KILN_WORKER_MEMORY",
    "template_dirs": "KILN_TEMPLATE_DIR",
    "seeds": "KILN_SEED",
    "remote_certificate": "KILN_REMOTE_CERT",
    "log_level": "KILN_LOG",
}
_configured: dict[str, str] = {}


def configure(
    *,
    cache_dir: str | os.PathLike | None = None,
    cache_limit_bytes: int | None = None,
    precompiled_limit_bytes: int | None = None,
    compile_timeout: float | None = None,
    worker_memory_bytes: int | None = None,
    jobs: int | None = None,
    no_jit: bool | None = None,
    nvrtc: str | os.PathLike | None = None,
    cudnn: str | os.PathLike | None = None,
    driver: str | os.PathLike | None = None,
    worker: str | os.PathLike | None = None,
    toolchain: str | None = None,
    attention: str | None = None,
    template_dirs: _Paths | None = None,
    record: str | os.PathLike | None = None,
    disable: str | Sequence[str] | None = None,
    trusted_uids: Sequence[int] | None = None,
    seeds: _Paths | None = None,
    remote: str | None = None,
    remote_mode: str | None = None,
    remote_keys: str | os.PathLike | None = None,
    remote_sign: str | os.PathLike | None = None,
    remote_auth: str | os.PathLike | None = None,
    remote_ca: str | os.PathLike | None = None,
    remote_certificate: str | os.PathLike | None = None,
    remote_wait: float | None = None,
    log_level: str | None = None,
) -> None:
    """Sets what the service is opened with: call it before the first use of a kernel. The program that
    kiln.warm() and the like run has these settings, too.

    What is None takes the value of its environment variable, ``KILN_CACHE_DIR`` and the like, or the
    default. ``compile_timeout`` and ``remote_wait`` are in seconds; ``attention`` is "best", "cudnn" or "kiln";
    ``no_jit`` forbids builds; ``seeds`` are packs or cache folders, in the place of KILN_SEED and of what
    installed packages offer (entry points ``kiln.seeds``). Raises InvalidArgument if the service is open already.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    texts = {name: path(name, given[name]) for name in _PATHS if name in given}
    texts |= {name: text(name, given[name]) for name in _TEXTS if name in given}
    numbers = {name: whole(name, given[name]) for name in _NUMBERS if name in given}
    lists = {name: several(name, given[name], one) for name, one in _LISTS.items() if name in given}
    uids = None if trusted_uids is None else [_uid(each) for each in trusted_uids]
    # As variables of the environment, in which an empty one is none.
    written = dict(texts)
    written |= {name: f"{n}B" if name.endswith("_bytes") else str(n) for name, n in numbers.items()}
    written |= {name: (":" if _LISTS[name] is path else ",").join(lists[name]) for name in lists}
    if uids is not None:
        written["trusted_uids"] = ",".join(map(str, uids))
    for name, seconds in (("compile_timeout", compile_timeout), ("remote_wait", remote_wait)):
        if seconds is not None:
            numbers[f"{name}_ms"] = _milliseconds(name, seconds)
            written[name] = f"{numbers[f'{name}_ms']}ms"
    if attention is not None:
        if attention not in (*_ATTENTION,):
            raise InvalidArgument(f"attention is {attention!r}; possible are best, cudnn and kiln")
        numbers["attention"] = _ATTENTION[attention]
        written["attention"] = "" if attention == "best" else attention
    library().configure(texts, numbers, lists, uids)
    _configured.update((_VARIABLES.get(name, f"KILN_{name.upper()}"), value) for name, value in written.items())


def variables() -> dict[str, str]:
    """What configure() was given, for the environment of the kiln program."""
    return dict(_configured)


def _milliseconds(name: str, seconds: float) -> int:
    if isinstance(seconds, str) or not math.isfinite(seconds):
        raise InvalidArgument(f"{name} is {seconds!r}, and not a number of seconds")
    return round(seconds * 1000)


def _uid(value: int) -> int:
    uid = whole("trusted_uids", value)
    if not 0 <= uid < 2**32:
        raise InvalidArgument(f"trusted_uids has {uid}, and user ids are from 0 to 4294967295")
    return uid


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
