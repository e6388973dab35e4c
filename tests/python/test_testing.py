"""kiln.testing: the CPU's memory as that of a device, and what it refuses."""

import re
import textwrap

import pytest
from conftest import KIT, ROOT, blocks, needs_torch

SETUP = """
    import numpy as np
    import kiln, kiln.testing
    from by_name import launch

    def softmax(rows, dtype=np.float32):
        x = np.linspace(-2, 2, rows * 60, dtype=np.float64).astype(dtype).reshape(1, 1, rows, 60)
        y = np.empty_like(x)
        launch("softmax_forward", y=y, x=x)
        wanted = np.exp(x.astype(np.float64))
        wanted /= wanted.sum(-1, keepdims=True)
        assert np.abs(y - wanted).max() < np.finfo(dtype).eps / 16, y

    def refused(error, call, *args):
        try:
            call(*args)
        except error as refusal:
            return str(refusal)
        return "it was not refused"
"""


@pytest.mark.usefixtures("nvrtc")
def test_kernels_of_each_type_and_device_are_computed_in_the_memory_of_the_cpu(run):
    run("""
    assert not kiln.testing.is_simulated()
    kiln.testing.use_simulated_device("9.0,9.0")
    assert kiln.testing.is_simulated()
    softmax(3)
    softmax(2, np.float16)
    with kiln.testing.device(1):
        softmax(3)
    softmax(3)
    launches = kiln.testing.launches()
    assert [each.device for each in launches] == [0, 0, 1, 0], launches
    assert [each.kernel[:28] for each in launches] == [
        "scaled_softmax_fwd:dtype=f32", "scaled_softmax_fwd:dtype=f16",
        "scaled_softmax_fwd:dtype=f32", "scaled_softmax_fwd:dtype=f32"], launches
    assert launches[0].function == "scaled_softmax_fwd" and not launches[0].is_captured
""")


@pytest.mark.usefixtures("nvrtc")
def test_a_kernel_of_ones_own_is_computed_by_its_ptx_or_by_python(run):
    run("""
    kiln.testing.use_simulated_device()
    own = kiln.Kernel('extern "C" __global__ void scale(float* x, float by, int n) {'
                      '  const int i = threadIdx.x; if (i < n) x[i] *= by; }')
    x = np.arange(4, dtype=np.float32)
    own(1, 32, x, 2.0, 4)
    assert x.tolist() == [0, 2, 4, 6], x

    import ctypes
    calls = []
    def scale(grid, block, address, by, n):
        calls.append((grid, block))
        numbers = (ctypes.c_float * n).from_address(address)
        numbers[:] = [by * number + 1 for number in numbers]
    kiln.testing.define_kernel("scale", (ctypes.c_void_p, ctypes.c_float, ctypes.c_int), scale)
    own(1, 32, x, 2.0, 4)
    assert x.tolist() == [1, 5, 9, 13] and calls == [((1, 1, 1), (32, 1, 1))], (x, calls)
""")


@pytest.mark.usefixtures("nvrtc")
def test_what_a_kernel_does_wrong_is_said_and_ends_the_device(run):
    run("""
    kiln.testing.use_simulated_device()
    wild = kiln.Kernel('extern "C" __global__ void wild(float* x) { x[threadIdx.x * 1ull << 40] = 1; }')
    x = np.zeros(4, dtype=np.float32)
    wild(1, 2, x)  # a device says so later
    said = refused(kiln.DeviceError, wild, 1, 2, x)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said, said
    assert "invalid global write of 4 bytes" in said, said
    assert "by thread (1, 0, 0) of block (0, 0, 0)" in said and "st.global" in said, said
""")


FINDS = """
    own = kiln.Kernel('extern "C" __global__ void own(int* y, int n) {'
                      '  __shared__ int s[64]; if (threadIdx.x < n) s[threadIdx.x] = 1;'
                      '  y[threadIdx.x] = s[63 - threadIdx.x]; }')
    y = np.zeros(64, dtype=np.int32)
"""


@pytest.mark.usefixtures("nvrtc")
def test_the_report_has_what_the_checks_found_since_the_last(run):
    run("\n    kiln.testing.use_simulated_device()" + FINDS + """
    own(1, 64, y, 32)
    found = kiln.testing.report()
    assert any("never written" in line for line in found) and any("race" in line for line in found), found
    assert all("own" in line for line in found), found
    assert kiln.testing.report() == []
""")
    run("\n    kiln.testing.use_simulated_device(checks=())" + FINDS + """
    own(1, 64, y, 64)
    assert kiln.testing.report() == []
""")


@pytest.mark.usefixtures("nvrtc")
def test_a_finding_fails_a_test_of_pytest_unless_the_test_takes_it(run, tmp_path):
    tests = "import kiln, kiln.testing, numpy as np\nkiln.testing.use_simulated_device()\n" + textwrap.dedent(FINDS)
    tests += textwrap.dedent("""
        def test_good(): kiln.Kernel('extern "C" __global__ void good() {}')(1, 64)
        def test_found(): own(1, 64, y, 32)
        def test_expected():
            own(1, 64, y, 32)
            assert kiln.testing.report()
        def test_of_its_own():
            own(1, 64, y, 32)
            assert False, "its own"
    """)
    (tmp_path / "test_own.py").write_text(tests)
    kit = str(ROOT / "python/testing")
    said = run(f"""
    import sys, pytest
    sys.path.insert(0, {kit!r})
    options = ["-rA", "-p", "kiln_jit_testing.pytest_plugin", "-p", "no:cacheprovider"]
    assert pytest.main([*options, {str(tmp_path / "test_own.py")!r}]) == 1
""")
    outcomes = dict(reversed(each) for each in re.findall(r"^(PASSED|FAILED) \S+::(\w+)", said, re.M))
    assert outcomes == {"test_good": "PASSED", "test_found": "FAILED", "test_expected": "PASSED", "test_of_its_own": "FAILED"}
    assert said.count("the simulated device found:") >= 1 and "AssertionError: its own" in said, said


@pytest.mark.usefixtures("nvrtc")
def test_a_kernel_without_ptx_is_not_run_and_that_is_said(run, tmp_path):
    (tmp_path / "file").write_text("")
    run("""
    kiln.testing.use_simulated_device()
    own = kiln.Kernel('extern "C" __global__ void own() {}')
    said = refused(kiln.DeviceError, own, 1, 32)
    assert "CUDA_ERROR_NOT_SUPPORTED" in said and "own is not run: no cache here has" in said, said
""", KILN_CACHE_DIR=str(tmp_path / "file" / "cache"))


def test_it_is_refused_twice_without_its_libraries_and_after_the_first_use(run):
    run("""
    import os
    folder = os.environ.pop("KILN_TEST_KIT")
    use = kiln.testing.use_simulated_device
    assert "kiln-jit-testing, or let KILN_TEST_KIT" in refused(kiln.Unavailable, use)
    os.environ["KILN_TEST_KIT"] = "/nowhere"
    assert "there is no /nowhere/driver/libcuda.so.1" in refused(kiln.Unavailable, use)
    os.environ["KILN_TEST_KIT"] = folder
    assert "'9' are no compute" in refused(kiln.InvalidArgument, use, "9")
    said = refused(kiln.InvalidArgument, lambda: use(checks=["none"]))
    assert "'none' are no checks" in said, said
    assert "use_simulated_device() first" in refused(kiln.InvalidArgument, kiln.testing.launches)
    use("8.6")
    assert [device.capability for device in kiln.devices()] == [(8, 6)]
    assert "was called before" in refused(kiln.InvalidArgument, use)
""")
    run("""
    kiln.devices()
    said = refused(kiln.InvalidArgument, kiln.testing.use_simulated_device)
    assert "configure() must come before" in said, said
""")


def test_it_is_refused_where_a_driver_has_a_device(run, tmp_path):
    (tmp_path / "libcuda.so.1").symlink_to(KIT / "libkiln-simulated-driver.so")
    run("""
    said = refused(kiln.InvalidArgument, kiln.testing.use_simulated_device)
    assert said.startswith("this machine has a CUDA device"), said
""", LD_LIBRARY_PATH=str(tmp_path), KILN_SIMULATED_DEVICES="9.0")


@needs_torch
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("page", ("docs/testing.md", "python/testing/README.md"))
def test_the_lines_of_the_pages_on_tests_run(page, python):
    (lines,) = blocks((ROOT / page).read_text(), "python")
    python(lines + "test_fill()\nassert kiln.testing.report() == []\n", torch=True, KILN_DRIVER=None)
