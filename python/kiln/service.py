"""The one service of the process: its settings, its devices and its counts.

It is opened by the first call that needs it, and stays open until the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ._library import library
from .errors import InvalidArgument

_ATTENTION = {"best": 0, "cudnn": 1, "kiln": 2}  # kiln/c.h
_PATHS = (
    *("cache_dir", "nvrtc", "cudnn", "driver", "worker", "record"),
    *("remote_keys", "remote_sign", "remote_auth", "remote_ca", "remote_certificate"),
)
_TEXTS = ("toolchain", "log_level", "remote", "remote_mode")
_NUMBERS = ("cache_limit_bytes", "precompiled_limit_bytes", "worker_memory_bytes", "jobs")


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
    template_dirs: Sequence[str | os.PathLike] | None = None,
    record: str | os.PathLike | None = None,
    disable: Sequence[str] | None = None,
    trusted_uids: Sequence[int] | None = None,
    seeds: Sequence[str | os.PathLike] | None = None,
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
    """Sets what the service is opened with: call it before the first use of a kernel.

    What is None takes the value of its environment variable (``kiln doctor`` lists them), or the
    default. ``compile_timeout`` and ``remote_wait`` are in seconds; ``attention`` is "best", "cudnn" or "kiln";
    ``no_jit`` forbids builds; ``seeds`` are packs or cache folders, in the place of KILN_SEED and of what
    installed packages offer (entry points ``kiln.seeds``). Raises InvalidArgument if the service is open already.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    texts = {name: os.fspath(given[name]) for name in _PATHS if name in given}
    texts |= {name: given[name] for name in _TEXTS if name in given}
    numbers = {name: int(given[name]) for name in _NUMBERS if name in given}
    if compile_timeout is not None:
        numbers["compile_timeout_ms"] = round(compile_timeout * 1000)
    if remote_wait is not None:
        numbers["remote_wait_ms"] = round(remote_wait * 1000)
    if no_jit is not None:
        numbers["no_jit"] = int(bool(no_jit))
    if attention is not None:
        if attention not in _ATTENTION:
            raise InvalidArgument(f"attention is {attention!r}; possible are best, cudnn and kiln")
        numbers["attention"] = _ATTENTION[attention]
    lists = {
        name: [os.fspath(each) for each in given[name]]
        for name in ("template_dirs", "disable", "seeds")
        if name in given
    }
    uids = None if trusted_uids is None else [int(uid) for uid in trusted_uids]
    library().configure(texts, numbers, lists, uids)


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
