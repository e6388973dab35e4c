"""What python_costs.py finds on this machine; what is missing leaves rows out."""

import ctypes
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from pairs import LeftOut

ROOT = Path(__file__).resolve().parents[2]
# Which Kiln and which NVRTC; its other settings are the user's, and no row's.
KEPT = ("KILN_FFI_LIBRARY", "KILN_NVRTC", "KILN_TEST_KIT", "KILN_WORKER")


def use_build(build, scratch):
    """Sets the environment, of children too: the Kiln of that build tree; without one,
    that of the environment, of a build tree of this clone, or the one installed."""
    for name in [each for each in os.environ if each.startswith("KILN_")]:
        if name not in KEPT:
            del os.environ[name]
    os.environ["KILN_CACHE_DIR"] = str(scratch / "cache")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
    if build is None and "KILN_FFI_LIBRARY" not in os.environ:
        built = [ROOT / "build" / preset for preset in ("release", "dev")]
        built = [each for each in built if (each / "lib/libkiln_ffi.so").exists()]
        build = built[0] if built else None
    if build is not None:
        build = Path(build).resolve()
        os.environ["KILN_FFI_LIBRARY"] = str(build / "lib/libkiln_ffi.so")
        os.environ["KILN_WORKER"] = str(build / "bin/kiln-worker")
        os.environ["KILN_TEST_KIT"] = str(build / "lib")
    if "KILN_FFI_LIBRARY" in os.environ:  # of a build, with the Python of this clone
        package = str(ROOT / "python")
        sys.path.insert(0, package)
        others = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{package}:{others}" if others else package


def module(name):
    """A module that need not be there."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever an import may raise
        raise LeftOut(f"{name} cannot be imported: {error}") from None


def require_torch():
    """Without importing it."""
    if importlib.util.find_spec("torch") is None:
        raise LeftOut("torch is not installed")


@functools.cache
def has_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        return (
            driver.cuInit(0) == 0
            and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
            and count.value > 0
        )
    except (OSError, AttributeError):  # there is none, or a stub
        return False


def simulated_driver():
    kit = os.environ.get("KILN_TEST_KIT")
    path = Path(kit or ".").resolve() / "libkiln-simulated-driver.so"
    if not kit or not path.exists():
        raise LeftOut("no GPU here, and no simulated driver: see --build")
    return path


def of_device():
    """The environment of a process that launches."""
    if has_gpu():
        return {}
    return {"KILN_DRIVER": simulated_driver(), "KILN_SIMULATED_KERNELS": "record"}


@functools.cache
def _report_of_doctor():
    from kiln._library import program_path

    done = subprocess.run(
        [program_path(), "doctor", "--json"],
        env=os.environ | {name: str(value) for name, value in of_device().items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,  # what else it finds wrong is no concern of these rows
    )
    return json.loads(done.stdout)


def find_nvrtc():
    """The library that Kiln finds."""
    found = _report_of_doctor()["toolchains"]
    if not found:
        raise LeftOut("no NVRTC here")
    return found[0]["path"]


def architecture():
    """Of the device, as NVRTC calls it: "sm_90"."""
    return "sm_" + _report_of_doctor()["devices"][0]["arch"].replace(".", "")
