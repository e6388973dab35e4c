"""Whether the device code of a library runs on the devices of this process: asked before it is loaded."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import errors
from .._library import program_path

_UNKNOWN = (errors.Error, OSError, ValueError, subprocess.SubprocessError)
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


def architectures(path: Path) -> list[str]:
    """Those for which the library has code that runs as it is: "9.0", "9.0a". None of a file that is not understood."""
    try:
        (file,) = _inspect(path)["files"]
    except _UNKNOWN:
        return []
    return sorted({each["arch"] for each in file["images"] if each["kind"] == "sass" and not each["relocatable"]})


def check(what: str, path: str, known: list[str]) -> None:
    """Raises RuntimeError if it fails on a device of this process; says so if its driver has to compile it.

    known: architectures(path). No context is made and, but in a program that names another driver, CUDA is
    not initialized: the children of this process may use it.
    """
    here = devices()
    if here is None and not _has_driver():
        return
    if here is not None and set(here) <= set(known):
        return
    try:
        (file,) = _inspect(path, here)["files"]
    except _UNKNOWN as error:
        print(f"kiln: whether {what} runs on the devices here is not known: {error}", file=sys.stderr)
        return
    for verdict in file["devices"]:
        device = f"{(here or {}).get(verdict['arch'], 'a device')} (compute capability {verdict['arch']})"
        if verdict["verdict"] == "fails":
            raise RuntimeError(f"{what} does not run on {device}: {verdict['reason']}. {verdict['remedy']}")
        if verdict["verdict"] == "compiles_at_load":
            print(f"kiln: {what} on {device}: {verdict['reason']}. {verdict['remedy']}", file=sys.stderr)


def _inspect(path: str | Path, here: dict[str, str] | None = None) -> Any:
    command = [str(program_path()), "inspect", "--json"]
    command += ["--arch", ",".join(here)] if here else []
    if here and (driver := _driver_version()):
        command += ["--driver", driver]
    done = subprocess.run(
        [*command, os.fspath(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode not in (0, 1):
        raise ValueError(done.stderr.strip() or f"kiln inspect ended with status {done.returncode}")
    return json.loads(done.stdout)


def devices() -> dict[str, str] | None:
    """The first device of each compute capability; None: only a driver could tell."""
    cuda = sys.modules["torch"].cuda
    found: dict[str, str] = {}
    with contextlib.suppress(Exception):  # of NVML, or of a GPU that is divided
        if cuda.is_initialized():
            for i in range(cuda.device_count()):
                major, minor = cuda.get_device_capability(i)
                found.setdefault(f"{major}.{minor}", f"cuda:{i}, {cuda.get_device_name(i)}")
            return found
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return None
        for i in range(cuda.device_count()):
            handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            name = ctypes.create_string_buffer(_NAME_BYTES)
            failed = (
                nvml.nvmlDeviceGetHandleByIndex_v2(cuda._get_nvml_device_index(i), ctypes.byref(handle))
                or nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
                or nvml.nvmlDeviceGetName(handle, name, _NAME_BYTES)
            )
            if failed:
                return None
            found.setdefault(f"{major.value}.{minor.value}", f"cuda:{i}, {name.value.decode(errors='replace')}")
        return found
    return None


def _driver_version() -> str:
    """As the driver says its CUDA version: "12.4"; "": NVML does not tell."""
    version = ctypes.c_int()
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() or nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version)):
            return ""
    except (OSError, AttributeError):
        return ""
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _has_driver() -> bool:
    if os.environ.get("KILN_DRIVER"):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
