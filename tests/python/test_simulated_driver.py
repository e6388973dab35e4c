"""The simulated driver as libcuda.so.1, for those who look it up by themselves: NVRTC, nvJitLink,
cuda.bindings and cuda.core."""

import ctypes
import os
import re

import pytest
from conftest import HERE, KIT, ROOT

DRIVER = KIT / "libkiln-simulated-driver.so"
FOLDERS = ("nvrtc-*/nvidia/*/lib", "tests/*/nvidia/*/lib")


def found_by_cuda_python(name):
    """Where cuda.bindings finds that library, as a list; none where it does not."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return [load_nvidia_dynamic_lib(name).abs_path]
    except (ImportError, RuntimeError):
        return []


def compilers():
    """Every NVRTC and nvJitLink that is here."""
    found = [
        path
        for folder in FOLDERS
        for path in (ROOT / ".deps").glob(f"{folder}/libnv[rJ]*.so.*")
        if re.search(r"/lib(nvrtc|nvJitLink)\.so", str(path))
    ]
    found += found_by_cuda_python("nvrtc") + found_by_cuda_python("nvJitLink")
    return sorted({str(path) for path in found})


@pytest.fixture
def as_driver(tmp_path):
    """What a process needs that finds the simulated driver as the system's."""
    (tmp_path / "libcuda.so.1").symlink_to(DRIVER)
    folders = f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return {"LD_LIBRARY_PATH": folders, "KILN_SIMULATED_DEVICES": "9.0"}


@pytest.mark.parametrize("path", compilers())
def test_it_has_what_a_compiler_looks_up(path):
    with open(path, "rb") as file:
        names = set(re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", file.read()))
    assert b"cuInit" in names or "libnvrtc" not in path, "what it looks up is not to be seen"
    driver = ctypes.CDLL(str(DRIVER))
    assert [name for name in names if not hasattr(driver, name.decode())] == []


@pytest.mark.parametrize("path", [path for path in compilers() if "libnvrtc" in path])
def test_a_compiler_that_finds_it_compiles(python, as_driver, path):
    # Without --no-cache, so that it asks the driver for its table of a cache.
    said = python(
        f"""
    import ctypes
    nvrtc = ctypes.CDLL({path!r})
    driver = ctypes.CDLL("libcuda.so.1")
    program = ctypes.c_void_p()
    source = b'extern "C" __global__ void one(float* y) {{ *y = 1; }}'
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"one.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 1)(b"-arch=sm_90")
    print(nvrtc.nvrtcCompileProgram(program, 1, options))
    print(driver.kiln_simulated_calls(b"cuGetExportTable"))
    """,
        **as_driver,
    )
    assert said.split("\n") == ["0", "1"]


def test_it_has_what_cuda_bindings_looks_up(python, as_driver):
    bindings = pytest.importorskip("cuda.bindings")
    major, minor = bindings.__version__.split(".")[:2]
    missing = python(
        """
    from cuda.bindings._internal import driver
    found = driver._inspect_function_pointers()
    assert len(found) > 400
    print(*[name for name, address in found.items() if not address])
    """,
        KILN_SIMULATED_DRIVER_VERSION=f"{major}0{minor}0",
        **as_driver,
    )
    assert missing == ""


def test_a_program_of_cuda_core_works(python, as_driver):
    pytest.importorskip("cuda.core")
    if not found_by_cuda_python("nvrtc"):
        pytest.skip("no NVRTC here that cuda.core finds")
    program = str(HERE / "programs/cuda_core_on_a_simulated_device.py")
    said = python(
        f"import runpy; runpy.run_path({program!r})", KILN_SIMULATED_KERNELS="run", **as_driver
    )
    assert said == "all of it works"
