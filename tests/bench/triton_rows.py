"""What kiln.triton costs beside Triton's own cache. Each sample is a process, or several, that
compile small kernels for sm_90 without a GPU and say how long."""

import importlib.util
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from pairs import LeftOut, Limit, Row, Sides, said_by

HIT = 1e-3
KERNELS = 24
JOB = 8, 24  # processes, kernels

# Arguments: how many kernels. Prints the seconds of each compile.
COMPILES = r"""
import json, sys, time
sys.modules["torch"] = None  # whose import is no part of it
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def scaled(x, y, n, FACTOR: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(y + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)

types, seconds = {"x": "*fp32", "y": "*fp32", "n": "i32", "FACTOR": "constexpr"}, []
for i in range(int(sys.argv[1])):
    begin = time.perf_counter()
    kernel = triton.compile(ASTSource(scaled, types, {"FACTOR": i}), target=GPUTarget("cuda", 90, 32))
    seconds.append(time.perf_counter() - begin)
    assert kernel.asm["cubin"].startswith(b"\x7fELF")
print(json.dumps(seconds))
"""


class TritonRows:
    def __init__(self, scratch):
        self.fresh = (scratch / f"triton{i}" for i in itertools.count())

    def rows(self):
        yield Row("triton/hit", "a kernel of Triton that is a hit, not a process's first", self._hit,
                  "Triton's own cache", limit=Limit(slack_s=HIT))
        yield Row("triton/job", f"{JOB[0]} processes that compile the same {JOB[1]} kernels, none in the cache",
                  self._job, "one process with Triton's own cache", f"{JOB[0]} such processes", is_long=True)

    def _hit(self):
        ours, own = _beneath(next(self.fresh)), _own(next(self.fresh))
        for each in (ours, own):
            said_by(_start(KERNELS, each))
        return Sides(lambda: _median(said_by(_start(KERNELS, ours))), lambda: _median(said_by(_start(KERNELS, own))))

    def _job(self):
        processes, kernels = JOB
        return Sides(
            lambda: _wall(processes, kernels, _beneath(next(self.fresh))),
            lambda: _wall(1, kernels, _own(next(self.fresh))),
            lambda: _wall(processes, kernels, _own(next(self.fresh))),
        )


def _own(folder):
    place = Path(__file__).resolve().parents[2] / ".deps/triton"
    path = os.environ.get("PYTHONPATH", "")
    if importlib.util.find_spec("triton") is None:
        if not place.is_dir():
            raise LeftOut("there is no Triton here")
        path = f"{place}:{path}"
    return {"PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder), "TRITON_CACHE_MANAGER": ""}


def _beneath(folder):
    return _own(folder) | {"KILN_CACHE_DIR": str(folder), "TRITON_CACHE_MANAGER": "kiln.triton:CacheManager"}


def _start(kernels, changes):
    env = {name: value for name, value in (os.environ | changes).items() if value or name != "TRITON_CACHE_MANAGER"}
    program = Path(changes["TRITON_CACHE_DIR"]).parent / "triton_bench.py"  # whose text Triton reads
    if not program.exists():
        program.write_text(COMPILES)
    command = [sys.executable, "-W", "ignore", str(program), str(kernels)]
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _wall(processes, kernels, changes):
    begin = time.perf_counter()
    for child in [_start(kernels, changes) for _ in range(processes)]:
        said_by(child)
    return time.perf_counter() - begin


def _median(seconds):
    return sorted(seconds[1:])[len(seconds) // 2]
