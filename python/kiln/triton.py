"""Kiln's cache beneath Triton: ``TRITON_CACHE_MANAGER=kiln.triton:CacheManager``.

A kernel of Triton, which is a group of files, is one artifact: verified on every read, compiled once on
a machine, and packed, listed and cleared by the kiln program like every other. ``python -m kiln run
--compat triton`` sets the variable for a whole job.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.runtime import cache as _theirs

from . import cache, errors
from ._placed import place

__all__ = ["CacheManager"]

# Whoever waits builds 5 s after the limit.
_LIMIT_SECONDS = 115.0
_TOOL = f"triton-{triton.__version__}"
_AUTOTUNING = ".autotune.json"
_NOTHING = "Triton compiled nothing"
_LIBRARY = ".so"
_DEVICE_CODE = (".cubin", ".hsaco")

_Fields = dict[str, bytes]


class _Thread(threading.local):
    turn: cache.Turn | None = None  # one: the next ends what a failed compile has left


_thread = _Thread()


class CacheManager(_theirs.CacheManager):
    """The files of one key of Triton.

    A miss of a kernel, or of a library that Triton builds in C, begins this thread's turn to build. The turn
    ends when the files are stored, when the thread compiles something else or ends, or when this manager ends.
    Others who miss the same files wait for the turn's end, at most 120 s. A fault of the cache is a miss.

    What users change by hand is left to Triton's own manager: the folders of TRITON_KERNEL_DUMP and
    TRITON_KERNEL_OVERRIDE, and all results with the latter. Kernels with ``ir_override`` are not stored.
    Results of autotuning are kept by the device's name, clocks and size, which Triton's key does not have.
    For a static launcher and a bundle of torch's Inductor, device code is also in TRITON_CACHE_DIR.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False):
        self.key = key
        self._own = None
        if override or dump or _is_overridden():
            self._own = _theirs.FileCacheManager(key, override, dump)
        self._folder = ""
        self._paths: dict[str, str] = {}  # of what was put, and of a group that was found
        self._turns: dict[str, weakref.ref[cache.Turn]] = {}
        self._is_group = False

    def __getattr__(self, name: str) -> Any:  # what else their manager has
        own = self.__dict__.get("_own")
        if own is None:
            raise AttributeError(f"kiln.triton.CacheManager has no attribute {name!r}")
        return getattr(own, name)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # Python may be ending
            for name in list(self._turns):
                self._end(name)

    def get_file(self, filename: str) -> str | None:
        if self._own is not None:
            return self._own.get_file(filename)
        if filename in self._paths:
            return self._paths[filename]
        return self._find(filename, self._file_fields(filename)).get(filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._own is not None:
            return self._own.get_group(filename)
        self._is_group = True
        found = dict(self._find(filename, self._group_fields(filename)))
        self._paths |= found
        self._show_to_inductor(found)
        return found or None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        if self._own is not None:
            return self._own.put(data, filename, binary=binary)
        content = data if isinstance(data, bytes) else str(data).encode()
        fields = None if self._is_group else self._file_fields(filename)
        path = self._store_file(filename, fields, content) if fields else None
        self._paths[filename] = path or self._write(filename, content)
        return self._paths[filename]

    def put_group(self, filename: str, group: Mapping[str, str]) -> str | None:
        if self._own is not None:
            return self._own.put_group(filename, group)
        stored: Mapping[str, str] = {}
        with contextlib.suppress(OSError):  # somebody has removed what was put
            files = {name: Path(path).read_bytes() for name, path in group.items()}
            metadata = _metadata(files.get(filename, b""))
            if not metadata.get("ir_override"):
                stored = self._store(filename, self._group_fields(filename), files, _labels(filename, metadata))
        self._end(filename)
        self._show_to_inductor(group)
        return stored.get(filename)

    def _find(self, name: str, fields: _Fields | None) -> Mapping[str, str]:
        """Empty: it is this thread's turn to build, or the cache has a fault."""
        if fields is None:
            return {}
        is_built = "group" in fields or name.endswith(_LIBRARY)
        try:
            found = self._begin(name, fields) if is_built else cache.get(fields)
        except errors.InvalidArgument:  # a setting
            raise
        except errors.Error as error:
            may_be_refusal = isinstance(error, (errors.Unavailable, errors.ForkError)) and "group" in fields
            if may_be_refusal and not cache.builds():
                raise
            found = None  # a forked child has no turns
        return found or {}

    def _begin(self, name: str, fields: _Fields) -> cache.Files | None:
        if _thread.turn is not None:
            _thread.turn.end(_NOTHING)
            _thread.turn = None
        found = cache.begin(fields, timeout=_LIMIT_SECONDS, **_labels(name, {}))
        if isinstance(found, cache.Files):
            return found
        _thread.turn = found
        self._turns[name] = weakref.ref(found)
        return None

    def _turn(self, name: str) -> cache.Turn | None:
        turn = self._turns.get(name)
        return turn() if turn else None

    def _end(self, name: str) -> None:
        if turn := self._turn(name):
            turn.end(_NOTHING)
        self._turns.pop(name, None)

    def _store(self, name: str, fields: _Fields, files: dict[str, bytes], labels: dict[str, Any]) -> Mapping[str, str]:
        """Empty where they could not be stored."""
        try:
            if turn := self._turn(name):
                return turn.commit(files, **labels)
            return cache.put(fields, files, **labels)
        except errors.Error:
            return {}
        finally:
            self._end(name)

    def _store_file(self, name: str, fields: _Fields, content: bytes) -> str | None:
        """In the place of another content, which could not be used, or is older."""
        labels = _labels(name, {})
        path = self._store(name, fields, {name: content}, labels).get(name)
        with contextlib.suppress(errors.Error, OSError):
            if path is not None and Path(path).read_bytes() != content:
                cache.remove(fields)
                path = self._store(name, fields, {name: content}, labels).get(name)
            if path is not None and Path(path).read_bytes() == content:
                return path
        return None

    def _group_fields(self, name: str) -> _Fields:
        return {"program": b"triton", "key": self.key.encode(), "group": name.encode()}

    def _file_fields(self, name: str) -> _Fields | None:
        """None: nothing of that name can be kept."""
        fields = {"program": b"triton", "key": self.key.encode(), "file": name.encode()}
        if name.endswith(_AUTOTUNING):
            device = _device()
            return None if device is None else fields | {"device": device}
        return fields | cache.machine_fields()  # Triton 3.0 has nothing of it in its key

    def _write(self, name: str, content: bytes) -> str:
        try:
            if not self._folder:
                self._folder = cache.new_folder()
            path = f"{self._folder}/{name}"
            Path(path).write_bytes(content)
        except (errors.Error, OSError):
            return _theirs.FileCacheManager(self.key).put(content, name)
        return path

    def _show_to_inductor(self, files: Mapping[str, str]) -> None:
        """Where it looks for device code by path."""
        folder = os.environ.get("TRITON_CACHE_DIR")
        if not folder or "torch._inductor" not in sys.modules:
            return
        for name in files:
            if name.endswith(_DEVICE_CODE):
                with contextlib.suppress(OSError):
                    place(files[name], os.path.join(folder, self.key, name))


def _is_overridden() -> bool:
    knobs = getattr(triton, "knobs", None)
    if knobs is not None:
        return bool(knobs.compilation.override)
    return os.environ.get("TRITON_KERNEL_OVERRIDE", "0") == "1"


def _metadata(text: bytes) -> dict[str, Any]:
    try:
        metadata = json.loads(text)
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _labels(filename: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """How the kiln program lists it. A kernel's text in Triton is source."""
    name = filename.removesuffix(".json").partition(".cpython-")[0].removesuffix(".so")
    target = metadata.get("target")
    arch = ""
    if isinstance(target, dict):
        backend, arch = target.get("backend"), str(target.get("arch", ""))
        arch = f"sm_{arch}" if backend == "cuda" else arch
    return {"name": name, "target": arch[:16], "tool": _TOOL, "sources": [f"{name}.source"]}


def _device() -> bytes | None:
    """What the time of a kernel on the current device depends on, as far as its driver tells; else None."""
    try:
        import ctypes

        active = triton.runtime.driver.active
        if active.get_current_target().backend != "cuda":
            return None
        ordinal = active.get_current_device()
        properties = dict(active.utils.get_device_properties(ordinal))
        driver = ctypes.CDLL("libcuda.so.1")
        handle, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), ordinal)
        if failed or driver.cuDeviceGetName(name, len(name), handle):
            return None
    except (OSError, RuntimeError, AttributeError, ValueError, TypeError):
        return None
    return json.dumps({"name": name.value.decode(errors="replace"), **properties}, sort_keys=True).encode()
