"""A simulated device, for tests on machines without a GPU.

    import kiln.testing
    kiln.testing.use_simulated_device("9.0")

From then on the CPU's memory is the memory of a CUDA device: ``kiln.ops`` and
``kiln.Kernel`` take tensors on the CPU, and Kiln builds, caches, loads and launches as on
a real device, with a simulated driver. It runs the PTX that NVRTC made, of any kernel:
some million instructions of warps a second, so take small tensors. ``define_kernel`` lets
Python compute in the place of a kernel.

The PTX is that of the cache: with the cache off, or of what was linked, there is none,
and a launch says so. What a kernel does wrong (an access out of bounds, say) is an error
of every later call, as on a device.

It has the checks of compute-sanitizer. What they find is in ``report()``, and fails a
test of pytest, unless the test has taken it with ``report()``.

The simulated driver comes with the package kiln-jit-testing (``pip install
'kiln-jit[testing]'``), or ``KILN_TEST_KIT`` names its folder: docs/testing.md. It is for
the whole process and cannot be undone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Sequence

from . import errors
from ._library import kit_folder, library
from .service import configure, variables

__all__ = [
    "Launch",
    "define_kernel",
    "device",
    "driver",
    "is_simulated",
    "launches",
    "report",
    "use_simulated_device",
]

@dataclass(frozen=True)
class Launch:
    """A launch that the simulated driver accepted."""

    kernel: str  # "rmsnorm_fwd:dtype=f32,...", "kernel.cu"
    function: str  # the entry point
    device: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    is_captured: bool  # into a graph
    is_repeated: bool  # by the launch of a graph
    programmatic: bool = False  # programmatic dependent launch
    priority: int | None = None
    cluster: tuple[int, int, int] = (0, 0, 0)  # zeros where none was asked for
    preferred_cluster: tuple[int, int, int] = (0, 0, 0)


class _Launch(ctypes.Structure):
    """``kiln_simulated_launch`` of tests/support/simulated_driver/simulated_driver.h."""

    _fields_ = [
        ("function", ctypes.c_char_p),
        ("device", ctypes.c_int),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("cluster", ctypes.c_uint * 3),
        ("is_cooperative", ctypes.c_int),
        ("is_captured", ctypes.c_int),
        ("is_repeated", ctypes.c_int),
        ("image", ctypes.c_char_p),
        ("is_programmatic", ctypes.c_int),
        ("has_priority", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("preferred_cluster", ctypes.c_uint * 3),
    ]


_HOST_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(_Launch), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


class _Kit:
    """The driver, opened."""

    def __init__(self, driver: Path) -> None:
        self.driver = ctypes.CDLL(str(driver))
        functions = {
            "launches": (ctypes.c_size_t, ctypes.POINTER(_Launch), ctypes.c_size_t),
            "register_kernel": (None, ctypes.c_char_p, _HOST_KERNEL, ctypes.c_void_p),
            "set_computing": (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
            "read_ptx_from": (None, ctypes.c_char_p),
            "name": (ctypes.c_char_p, ctypes.c_char_p),
            "take_error": (ctypes.c_char_p,),
            "take_report": (ctypes.c_char_p,),
        }
        for name, (result, *arguments) in functions.items():
            function = getattr(self.driver, f"kiln_simulated_{name}")
            function.restype, function.argtypes = result, tuple(arguments)
        self.defined: dict[str, object] = {}  # callbacks that the driver has
        self.ordinal = 0

    def take_error(self) -> str:
        return self.driver.kiln_simulated_take_error().decode()


_lock = threading.Lock()
_kit: _Kit | None = None


def is_simulated() -> bool:
    """Whether ``use_simulated_device`` has been called."""
    return _kit is not None


def use_simulated_device(
    capabilities: str = "9.0", *, checks: Sequence[str] = ("unset", "races")
) -> None:
    """Makes the CPU's memory that of simulated devices with these compute capabilities.

    ``"8.6,9.0"`` are two devices; ``device`` says which of them has the memory, the first
    at first. ``checks`` are looked for beside what is an error on a device: reads of
    memory that nobody wrote, and races on shared memory. Call it before Kiln is used:
    afterwards, and where there is a real device, it raises ``kiln.InvalidArgument``.
    Attention is computed by Kiln's own kernels, whatever KILN_ATTENTION says.
    """
    global _kit
    with _lock:
        if _kit is not None:
            raise errors.InvalidArgument("use_simulated_device() was called before")
        if not re.fullmatch(r"\d+\.\d(,\d+\.\d)*", capabilities):
            raise errors.InvalidArgument(
                f"{capabilities!r} are no compute capabilities, such as '8.6,9.0'"
            )
        _refuse_real_driver()
        path = _driver_path()
        # Refused if Kiln was used before. cuDNN takes no memory of the CPU.
        configure(driver=path, attention="kiln")
        kit = _Kit(path)
        if kit.driver.kiln_simulated_set_devices(capabilities.encode()) != 0:
            raise errors.InvalidArgument(f"{path} is in use already")
        computing = {"KERNELS": "run", "MEMORY": "process", "CHECKS": ",".join(checks)}
        for name, value in computing.items():
            if kit.driver.kiln_simulated_set_computing(name.encode(), value.encode()) != 0:
                raise errors.InvalidArgument(f"{value!r} are no checks of {path}")
        if cache := variables().get("KILN_CACHE_DIR"):
            kit.driver.kiln_simulated_read_ptx_from(cache.encode())
        on_event = ctypes.cast(kit.driver.kiln_simulated_on_event, ctypes.c_void_p)
        library().use_events(on_event.value, 0)
        library().use_cpu_device(0)
        _explain_device_errors(kit)
        _kit = kit
    ops = sys.modules.get("kiln.ops")
    if ops is not None:
        ops._register_cpu()


@contextlib.contextmanager
def device(ordinal: int) -> Iterator[None]:
    """While it lasts, the CPU's memory belongs to that simulated device, for all threads.

    Of the devices that JAX makes of the CPU it is the first, and the next ones follow.
    """
    kit = _in_use()
    before = kit.ordinal
    _set_device(kit, ordinal)
    try:
        yield
    finally:
        _set_device(kit, before)


def driver() -> ctypes.CDLL:
    """The simulated driver: the CUDA driver's functions, and ``kiln_simulated_...`` of
    tests/support/simulated_driver/simulated_driver.h, which also makes calls fail."""
    return _in_use().driver


def launches() -> list[Launch]:
    """Every launch so far, in order."""
    kit = _in_use()
    room = kit.driver.kiln_simulated_launches(None, 0)
    all_of_them = (_Launch * room)()
    kit.driver.kiln_simulated_launches(all_of_them, room)
    return [
        Launch(
            kernel=kit.driver.kiln_simulated_name(each.image).decode(),
            function=each.function.decode(),
            device=each.device,
            grid=tuple(each.grid),
            block=tuple(each.block),
            shared_bytes=each.dynamic_shared_bytes,
            stream=each.stream or 0,
            is_captured=bool(each.is_captured),
            is_repeated=bool(each.is_repeated),
            programmatic=bool(each.is_programmatic),
            priority=each.priority if each.has_priority else None,
            cluster=tuple(each.cluster),
            preferred_cluster=tuple(each.preferred_cluster),
        )
        for each in all_of_them
    ]


def report() -> list[str]:
    """What kernels did wrong, and what the checks noticed, since the last call: a line each
    with the kernel, the thread, the instruction and the address."""
    return _in_use().driver.kiln_simulated_take_report().decode().splitlines()


def define_kernel(
    function: str, types: Sequence[type], run: Callable[..., None]
) -> None:
    """Every later launch of that entry point calls ``run(grid, block, *arguments)``.

    ``types`` are those of the arguments in ctypes: ``ctypes.c_float``, and
    ``ctypes.c_void_p`` for a pointer, of which ``run`` gets the address. What ``run``
    raises is printed and not passed on.
    """
    kit = _in_use()

    def call(launch, parameters, _user):
        arguments = [
            ctypes.cast(parameters[i], ctypes.POINTER(each)).contents.value
            for i, each in enumerate(types)
        ]
        run(tuple(launch.contents.grid), tuple(launch.contents.block), *arguments)

    callback = _HOST_KERNEL(call)
    kit.driver.kiln_simulated_register_kernel(function.encode(), callback, None)
    kit.defined[function] = callback


def _in_use() -> _Kit:
    if _kit is None:
        raise errors.InvalidArgument("call use_simulated_device() first")
    return _kit


def _set_device(kit: _Kit, ordinal: int) -> None:
    library().use_cpu_device(ordinal)
    kit.ordinal = ordinal


def _refuse_real_driver() -> None:
    try:
        has_device = ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except (OSError, AttributeError):  # there is none, or a stub
        return
    if has_device:
        raise errors.InvalidArgument(
            "this machine has a CUDA device: use that device, or hide it with "
            "CUDA_VISIBLE_DEVICES=''"
        )


def _driver_path() -> Path:
    folder = kit_folder()
    if not folder:
        raise errors.Unavailable(
            "there is no simulated driver here: install the package kiln-jit-testing, or "
            "let KILN_TEST_KIT name the folder of a test kit (docs/testing.md)"
        )
    path = Path(folder).resolve() / "driver/libcuda.so.1"
    if not path.exists():
        raise errors.Unavailable(f"there is no {path}: KILN_TEST_KIT names no test kit")
    return path


def _explain_device_errors(kit: _Kit) -> None:
    """A launch that fails says why, which the driver's error does not."""
    import tvm_ffi

    class WithReason:  # tvm_ffi wants a class
        def __new__(cls, message: str) -> errors.DeviceError:
            reason = kit.take_error()
            return errors.DeviceError(f"{message}: {reason}" if reason else message)

    tvm_ffi.register_error("kiln.DeviceError", WithReason)
