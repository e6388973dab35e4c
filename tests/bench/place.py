"""Where the calls of call_rows.py go: a GPU, or the simulated driver, which computes
nothing, so that no row has the time of a kernel.

It also has what a kernel's launch is compared with: the driver's own, CuPy's and
cuda.core's.
"""

import ctypes
import functools
import os
import shutil
import sys
import time
from pathlib import Path

from machine import find_nvrtc, has_gpu, module, simulated_driver
from pairs import LeftOut

ROWS, COLS = 4, 64  # of the tensors: so few that even the CPU needs no time for them

SOURCE = """
extern "C" __global__ void scale(float* y, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
"""
SIZE = ROWS * COLS
FACTOR = 2.0


def _check(result):
    if result != 0:
        raise RuntimeError(f"the driver returned {result}")


class Place:
    """Device 0 of this process, with Kiln's service open on it."""

    def __init__(self, cache):
        find_nvrtc()
        import kiln

        if has_gpu():
            kiln.configure(cache_dir=cache)
            self.driver = ctypes.CDLL("libcuda.so.1")
        else:
            simulated_driver()
            sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
            import simulated  # of the tests: it computes nothing

            self.driver = simulated.use("9.0", cache_dir=cache)
        self.device = "cuda" if has_gpu() else "cpu"
        context = ctypes.c_void_p()
        _check(self.driver.cuInit(0))
        _check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        _check(self.driver.cuCtxSetCurrent(context))  # as torch leaves it
        self.scale = kiln.Kernel(SOURCE)

    def settle(self):
        _check(self.driver.cuCtxSynchronize())

    @functools.cached_property
    def torch(self):
        torch = module("torch")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise LeftOut("this torch has no CUDA")
        if self.device == "cpu":
            import kiln.ops

            kiln.ops._register_cpu()  # for compiled code
            torch.set_num_threads(1)  # others would only wait
        return torch

    @functools.cached_property
    def arrays(self):
        """y and x of the kernel, of any library that is here."""
        try:
            return [self.torch.ones(SIZE, device=self.device) for _ in range(2)]
        except LeftOut:
            numpy = module("numpy" if self.device == "cpu" else "cupy")
            return [numpy.ones(SIZE, numpy.float32) for _ in range(2)]

    @functools.cached_property
    def nop(self):
        """A function of tvm-ffi that takes anything and does nothing."""
        import tvm_ffi

        found = tvm_ffi.get_global_func("testing.nop", allow_missing=True)
        if found is None:
            raise LeftOut("this tvm-ffi has no testing.nop")
        return found

    # ---- Launches of the kernel `scale`

    def launch_by_driver(self):
        """A call of the driver's own launch by ctypes, whose arguments are ready."""
        loaded, function = ctypes.c_void_p(), ctypes.c_void_p()
        image = self.scale.image
        _check(self.driver.cuModuleLoadData(ctypes.byref(loaded), image))
        _check(
            self.driver.cuModuleGetFunction(ctypes.byref(function), loaded, b"scale")
        )
        values = (
            *(ctypes.c_void_p(address_of(each)) for each in self.arrays),
            ctypes.c_float(FACTOR),
            ctypes.c_int(SIZE),
        )
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        arguments = (function, 1, 1, 1, SIZE, 1, 1, 0, None, parameters, None)
        launch = self.driver.cuLaunchKernel
        _check(launch(*arguments))
        # `values` has what `parameters` points to.
        return lambda kept=values: launch(*arguments)

    def launch_by_kiln(self, arrays=None):
        y, x = arrays or self.arrays
        scale = self.scale
        scale(1, SIZE, y, x, FACTOR, SIZE)
        return lambda: scale(1, SIZE, y, x, FACTOR, SIZE)

    def launches_by_cupy(self):
        """Kiln's launch of CuPy's arrays, and CuPy's own."""
        cupy = self._module_for_gpu("cupy")
        y, x = (cupy.ones(SIZE, cupy.float32) for _ in range(2))
        kernel = cupy.RawKernel(SOURCE, "scale")
        factor, size = cupy.float32(FACTOR), cupy.int32(SIZE)

        def peer():
            kernel((1,), (SIZE,), (y, x, factor, size))

        peer()
        return self.launch_by_kiln((y, x)), peer

    def launches_by_cuda_core(self):
        """Kiln's launch, and that of the same image by cuda.core."""
        core = self._module_for_gpu("cuda.core")
        device = core.Device(0)
        device.set_current()
        stream = device.default_stream
        kernel = self.scale.object_code().get_kernel("scale")
        config = core.LaunchConfig(grid=1, block=SIZE)
        addresses = [address_of(each) for each in self.arrays]
        factor, size = ctypes.c_float(FACTOR), ctypes.c_int(SIZE)

        def peer():
            core.launch(stream, config, kernel, *addresses, factor, size)

        peer()
        return self.launch_by_kiln(), peer

    def _module_for_gpu(self, name):
        found = module(name)
        if self.device == "cpu":
            raise LeftOut(f"{name} is measured on a GPU alone, and here is none")
        return found


def address_of(array):
    if hasattr(array, "data_ptr"):  # torch
        return array.data_ptr()
    if hasattr(array, "ctypes"):  # NumPy
        return array.ctypes.data
    return array.data.ptr  # CuPy


def compiler_backend(place, asked):
    """The backend of torch.compile, and why it is that one."""
    torch = place.torch
    if asked:
        return asked, "asked for"
    if place.device == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "aot_eager", "no compiler of C++ here"
    try:
        began = time.monotonic()
        trial = torch.compile(lambda x: x * 2 + 1, backend="inductor")
        trial(torch.ones(8, device=place.device))
        return "inductor", f"a trial took {time.monotonic() - began:.1f} s"
    except Exception as error:  # whatever a compiler may raise
        said = str(error).strip().splitlines() or [type(error).__name__]
        return "aot_eager", f"inductor does not work here: {said[0]}"
