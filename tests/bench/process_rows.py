"""What a process waits for that uses the package: importing it, and the first kernel.
Each sample is a Python process of its own, from its start to its end."""

import itertools
import os
import subprocess
import sys
import time

from machine import architecture, find_nvrtc, has_gpu, of_device, require_torch
from pairs import Limit, Row, Sides
from place import SOURCE

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
IMPORT_TVM_FFI = f"{WITHOUT_TORCH}import tvm_ffi"  # most of what opening Kiln takes

# Arguments: which count of kiln.statistics() says where the kernel came from.
FIRST_KERNEL = f"""{WITHOUT_TORCH}
import kiln
kiln.Kernel({SOURCE!r})(1, 64, None, None, 2.0, 0)
counts = kiln.statistics()
assert counts[sys.argv[1]] == 1, counts
"""

# Arguments: the library, the option for the architecture.
BY_NVRTC = f"""
import ctypes, sys
nvrtc = ctypes.CDLL(sys.argv[1])
program, size = ctypes.c_void_p(), ctypes.c_size_t()
options = (ctypes.c_char_p * 1)(sys.argv[2].encode())
def check(result):
    assert result == 0, result
check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), {SOURCE.encode()!r}, b"kernel.cu",
                               0, None, None))
check(nvrtc.nvrtcCompileProgram(program, 1, options))
check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
cubin = ctypes.create_string_buffer(size.value)
check(nvrtc.nvrtcGetCUBIN(program, cubin))
assert cubin.raw.startswith(b"\\x7fELF")
"""

# Arguments: the tensors' device; "kiln" or "torch".
FIRST_OPERATION = """
import sys, torch
x, weight = (torch.ones(shape, device=sys.argv[1]) for shape in ((4, 64), (64,)))
if sys.argv[2] == "torch":
    torch.nn.functional.rms_norm(x, (64,), weight)
else:
    import kiln.ops
    if sys.argv[1] == "cpu":
        from kiln._library import library
        library().use_cpu_device(0)
    kiln.ops.rms_norm(x, weight)
"""


class ProcessRows:
    def __init__(self, scratch):
        self.scratch = scratch
        self.fresh = (scratch / f"cold{i}" for i in itertools.count())

    def rows(self):
        yield Row(
            "import/kiln",
            "python3 -c 'import kiln'",
            lambda: sides("import kiln", "pass"),
            "python3 -c pass",
            limit=Limit(slack_s=0.050),
        )
        yield Row(
            "import/library",
            "the same, and its library opened, no torch",
            lambda: sides(
                f"{WITHOUT_TORCH}from kiln._library import library; library()",
                IMPORT_TVM_FFI,
            ),
            "python3 -c 'import tvm_ffi'",
        )
        yield Row(
            "first/warm",
            "process whose first kiln.Kernel is in the cache",
            self._first_warm,
            "python3 -c pass",
            "python3 -c 'import tvm_ffi'",
        )
        yield Row(
            "first/cold",
            "process whose first kiln.Kernel is built",
            self._first_cold,
            "process that compiles it with NVRTC by ctypes",
        )
        yield Row(
            "first/operation",
            "process whose first operation is in the cache",
            self._first_operation,
            "process that calls torch's rms_norm",
            is_long=True,
        )

    def _first_warm(self):
        find_nvrtc()
        cache = {"KILN_CACHE_DIR": self.scratch / "warm"} | of_device()
        wall(FIRST_KERNEL, "compiled", **cache)
        return Sides(
            lambda: wall(FIRST_KERNEL, "disk_hits", **cache),
            lambda: wall("pass"),
            lambda: wall(IMPORT_TVM_FFI),
        )

    def _first_cold(self):
        nvrtc, option = find_nvrtc(), f"-arch={architecture()}"
        return Sides(
            lambda: wall(
                FIRST_KERNEL, "compiled", KILN_CACHE_DIR=next(self.fresh), **of_device()
            ),
            lambda: wall(BY_NVRTC, nvrtc, option),
        )

    def _first_operation(self):
        find_nvrtc()
        require_torch()
        device = "cuda" if has_gpu() else "cpu"
        cache = {"KILN_CACHE_DIR": self.scratch / "warm"} | of_device()
        return Sides(  # the first turn fills the cache
            lambda: wall(FIRST_OPERATION, device, "kiln", **cache),
            lambda: wall(FIRST_OPERATION, device, "torch"),
        )


def wall(code, *arguments, **changes):
    """Seconds that a Python process takes for this code."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {name: str(value) for name, value in changes.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    elapsed = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"a child ended with {done.returncode}:\n{done.stderr}")
    return elapsed


def sides(measured, floor):
    return Sides(lambda: wall(measured), lambda: wall(floor))
