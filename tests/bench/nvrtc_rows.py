"""What `kiln run` costs a program that calls NVRTC, beside NVRTC itself. Each sample is a
process, or several, beneath the stand-in or not, that compiles programs by ctypes and says how
long."""

import itertools
import os
import subprocess
import sys
import time

from machine import find_nvrtc
from pairs import LeftOut, Limit, Row, Sides, said_by

HIT = 100e-6
FIRST_HIT = 8e-3
START = 5e-3
MISS = 1.1  # times NVRTC's time
JOB = 8, 40  # processes, programs

# Arguments: the library, how many programs, how often. Prints the seconds of each compile.
COMPILES = r"""
import ctypes, json, sys, time
nvrtc, seconds = ctypes.CDLL(sys.argv[1]), []
option = (ctypes.c_char_p * 1)(b"-arch=sm_90")
text = 'extern "C" __global__ void k%d(float* y) { for (int i = 0; i < %d; ++i) y[i] *= threadIdx.x; }'
for _ in range(int(sys.argv[3])):
    for i in range(int(sys.argv[2])):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        source, begin = (text % (i, i + 1)).encode(), time.perf_counter()
        codes = [nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"k.cu", 0, None, None),
                 nvrtc.nvrtcCompileProgram(program, 1, option),
                 nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))]
        cubin = ctypes.create_string_buffer(size.value)
        codes += [nvrtc.nvrtcGetCUBIN(program, cubin), nvrtc.nvrtcDestroyProgram(ctypes.byref(program))]
        seconds.append(time.perf_counter() - begin)
        assert codes == [0] * 5 and cubin.raw.startswith(b"\x7fELF"), codes
print(json.dumps(seconds))
"""


class NvrtcRows:
    def __init__(self, scratch, calls):
        self.calls = calls
        self.warm = scratch / "nvrtc"
        self.fresh = (scratch / f"nvrtc{i}" for i in itertools.count())

    def rows(self):
        yield Row("nvrtc/start", "a process beneath the stand-in that compiles nothing", self._start_alone,
                  "the same process without the stand-in", limit=Limit(slack_s=START))
        yield Row("nvrtc/hit", "a compile that is a hit", self._hit, "four calls that do nothing",
                  "NVRTC's own compile", limit=Limit(slack_s=HIT))
        yield Row("nvrtc/first", "a process whose first compile is a hit", self._first,
                  "the same process without a compile", "with NVRTC's own", limit=Limit(slack_s=FIRST_HIT))
        yield Row("nvrtc/miss", "a compile that is built, not a process's first", self._miss,
                  "NVRTC's own", limit=Limit(ratio=MISS))
        yield Row("nvrtc/job", f"{JOB[0]} processes that compile the same {JOB[1]} programs, none in the cache",
                  self._job, f"one process that compiles {JOB[1]} with NVRTC",
                  f"{JOB[0]} such processes", is_long=True)

    def _start_alone(self):
        beneath = _beneath(self.warm)
        return Sides(lambda: _wall([[]], beneath, "print(0)"), lambda: _wall([[]], {}, "print(0)"))

    def _hit(self):
        nvrtc, beneath = find_nvrtc(), _beneath(self.warm)
        nothing = "import ctypes, sys, time; f = ctypes.CDLL(sys.argv[1]).nvrtcVersion; n = ctypes.c_int()\n"
        nothing += "begin = time.perf_counter(); [f(None, None) for _ in range(400)]\n"
        nothing += "print([(time.perf_counter() - begin) / 100])"
        return Sides(
            lambda: _median(_run([nvrtc, 1, self.calls], beneath)[1:]),
            lambda: _median(_run([nvrtc], {}, nothing)),
            lambda: _median(_run([nvrtc, 1, 5], {})[1:]),
        )

    def _first(self):
        nvrtc, beneath = find_nvrtc(), _beneath(self.warm)
        _run([nvrtc, 1, 1], beneath)
        return Sides(
            lambda: _wall([[nvrtc, 1, 1]], beneath),
            lambda: _wall([[nvrtc, 0, 1]], beneath),
            lambda: _wall([[nvrtc, 1, 1]], {}),
        )

    def _miss(self):
        nvrtc = find_nvrtc()
        return Sides(
            lambda: _median(_run([nvrtc, 12, 1], _beneath(next(self.fresh)))[1:]),
            lambda: _median(_run([nvrtc, 12, 1], {})[1:]),
        )

    def _job(self):
        nvrtc = find_nvrtc()
        processes, programs = JOB
        all_compile = [[nvrtc, programs, 1]] * processes
        return Sides(
            lambda: self._built_once(all_compile, programs),
            lambda: _wall(all_compile[:1], {}),
            lambda: _wall(all_compile, {}),
        )

    def _built_once(self, all_compile, programs):
        folder = next(self.fresh)
        seconds = _wall(all_compile, _beneath(folder))
        objects = sum(each.is_file() for each in (folder / "objects").rglob("*"))
        if objects != programs:
            raise RuntimeError(f"{objects} objects of {programs} programs")
        return seconds


def _beneath(cache):
    from kiln import _standin

    variables = _standin.environment()
    if not variables:
        raise LeftOut("no stand-in can be made here")
    return variables | {"KILN_CACHE_DIR": str(cache)}


def _start(arguments, changes, code=COMPILES):
    """NVRTC's cache beneath the driver is no part of what is measured."""
    env = os.environ | {"CUDA_CACHE_DISABLE": "1"} | changes
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _run(arguments, changes, code=COMPILES):
    return said_by(_start(arguments, changes, code))


def _wall(each, changes, code=COMPILES):
    begin = time.perf_counter()
    for child in [_start(arguments, changes, code) for arguments in each]:
        said_by(child)
    return time.perf_counter() - begin


def _median(values):
    return sorted(values)[len(values) // 2]
