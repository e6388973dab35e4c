"""A simulated device without torch: the CPU's memory is its memory. Launches are recorded."""

import ctypes
import os
from collections import namedtuple
from pathlib import Path

import kiln
from kiln._library import library

Launch = namedtuple("Launch", "function device grid block shared stream values")


class _Record(ctypes.Structure):
    """The first fields of kiln_simulated_launch, in tests/support/simulated_driver."""

    _fields_ = [
        ("function", ctypes.c_char_p),
        ("device", ctypes.c_int),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
    ]


_RUN = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(_Record), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)
_kept = []


def use(capabilities="9.0", **settings):
    """Opens the simulated driver for this process and configures Kiln with it."""
    path = Path(os.environ["KILN_TEST_KIT"]) / "libkiln-simulated-driver.so"
    driver = ctypes.CDLL(str(path))
    assert driver.kiln_simulated_set_devices(capabilities.encode()) == 0
    assert driver.kiln_simulated_set_computing(b"KERNELS", b"record") == 0
    kiln.configure(driver=path, **settings)
    library().use_cpu_device(0)
    return driver


def record(driver, function, *types):
    """Launches of `function` from now on, with the values of its parameters of these types."""
    launches = []

    def run(launch, parameters, _user):
        one = launch.contents
        values = [
            kind.from_buffer_copy(ctypes.string_at(parameters[i], ctypes.sizeof(kind)))
            for i, kind in enumerate(types)
        ]
        values = [getattr(value, "value", value) for value in values]
        launches.append(
            Launch(one.function.decode(), one.device, tuple(one.grid), tuple(one.block),
                   one.shared, one.stream or 0, values)
        )

    callback = _RUN(run)
    _kept.append(callback)
    driver.kiln_simulated_register_kernel(function.encode(), callback, None)
    return launches
