"""`kiln run --simulate`: programs that call the CUDA driver, on simulated devices."""

import json
import sys
from importlib.util import find_spec

import pytest
from beneath import KILN, NEWEST, run, runtime  # noqa: F401
from conftest import KIT

HAS_CORE = find_spec("cuda") is not None and find_spec("cuda.core") is not None
BOTH = pytest.mark.parametrize("kiln", ([KILN], [sys.executable, "-m", "kiln"]), ids=("program", "package"))
DEVICES = """
import ctypes
cuda, count, major = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
for device in range(count.value):
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
    print(major.value)
"""
# A cubin by NVRTC, loaded and launched by cuda.core.
LAUNCHES = """
import ctypes
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
device = Device(0)
device.set_current()
stream = device.create_stream()
source = 'extern "C" __global__ void scale(float* x, float by) { x[threadIdx.x] *= by; }'
arch = "sm_%d%d" % tuple(device.compute_capability)
kernel = Program(source, "c++", ProgramOptions(arch=arch)).compile("KIND").get_kernel("scale")
from cuda.bindings import driver
numbers = (ctypes.c_float * 32)(*range(32))
_, memory = driver.cuMemAlloc(ctypes.sizeof(numbers))
driver.cuMemcpyHtoD(memory, ctypes.addressof(numbers), ctypes.sizeof(numbers))
launch(stream, LaunchConfig(grid=1, block=32), kernel, int(memory), ctypes.c_float(3))
stream.sync()
driver.cuMemcpyDtoH(ctypes.addressof(numbers), memory, ctypes.sizeof(numbers))
assert list(numbers) == [3 * i for i in range(32)], list(numbers)
print(arch)
"""


def simulated(run, kiln, *arguments, **changes):
    """Beneath nothing that the test has set for it."""
    ended = run(*kiln, "run", *arguments, mode=None, KILN_DRIVER=None, KILN_SIMULATED_KERNELS=None, **changes)
    return ended


@BOTH
def test_a_program_finds_the_devices_behind_the_drivers_name(kiln, run):
    ended = simulated(run, kiln, "--simulate", "8.6,9.0", "--", sys.executable, "-c", DEVICES)
    assert (ended.status, ended.out) == (0, "0 0 2\n8\n9\n"), ended.errors


@BOTH
@pytest.mark.skipif(not HAS_CORE, reason="cuda.core is not installed")
@pytest.mark.parametrize("kind", ("cubin", "ptx"))
def test_cuda_core_launches_what_nvrtc_made(kind, kiln, run, tmp_path):
    (tmp_path / "train.py").write_text(LAUNCHES.replace("KIND", kind))
    program = [sys.executable, "train.py"] if kiln == [KILN] else ["train.py"]
    ended = simulated(run, kiln, "--simulate=9.0", "--", *program)
    assert (ended.status, ended.out) == (0, "sm_90\n"), ended.errors


@pytest.mark.skipif(not HAS_CORE, reason="cuda.core is not installed")
def test_a_fault_is_said_and_is_the_programs(run, tmp_path):
    (tmp_path / "train.py").write_text(LAUNCHES.replace("KIND", "cubin").replace("x[threadIdx.x]", "x[threadIdx.x * 1000]"))
    ended = simulated(run, [KILN], "--simulate", "9.0", "--", sys.executable, "train.py")
    assert ended.status == 1 and any("invalid global" in line and "scale" in line for line in ended.errors), ended.errors


def test_the_variables_are_printed_for_a_shell(run, tmp_path):
    ended = simulated(run, [KILN], "--simulate", "9.0", "--print-env", "--json", LD_LIBRARY_PATH="/mine")
    assert ended.status == 0 and json.loads(ended.out) == {
        "KILN_DRIVER": str(KIT / "driver/libcuda.so.1"),
        "KILN_SIMULATED_DEVICES": "9.0",
        "LD_LIBRARY_PATH": f"{KIT}/driver:/mine",
        "LD_AUDIT": str(KILN.parent / "libkiln-audit.so"),
    }


@BOTH
def test_wrong_devices_and_a_kit_that_is_not_there_are_refused(kiln, run):
    for devices in ("9", "9.0,", "sm_90", "9.0 8.6"):
        ended = simulated(run, kiln, "--simulate", devices, "--", "true")
        assert ended.status == 2 and "such as 8.6,9.0" in "".join(ended.errors), (devices, ended.errors)
    ended = simulated(run, kiln, "--simulate", "9.0", "--", "true", KILN_TEST_KIT="/nowhere")
    assert ended.status == 3 and "looked at /nowhere" in "".join(ended.errors), ended.errors
