"""What the tests of `kiln run` share: the NVRTCs here, and fixtures that run a program beneath their stand-ins.

What a program prints must be the same with and without them; that they were called is proved by the line that
each prints at the end with KILN_NVRTC_STANDIN=trace.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from conftest import HERE, KIT, ROOT, doctor, environment

AUDIT = KIT.parent / "bin/libkiln-audit.so"
KILN = KIT.parent / "bin/kiln"
PROGRAMS = HERE / "programs"
CALLER = (sys.executable, str(PROGRAMS / "nvrtc_caller.py"))
LINE = re.compile(r"^kiln: stand-in for (\S+):((?: \w+ \d+)*)(?:; (.*))?$")
FUNCTIONS = {"nvrtcVersion", "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetPTX"}

if not AUDIT.exists():
    pytest.skip(f"there is no {AUDIT}", allow_module_level=True)


def libraries():
    """The path of each NVRTC here, by its version."""
    found = {each["version"]: each["path"] for each in doctor().get("toolchains", [])}
    for path in ROOT.glob(".deps/tests/*/nvidia/*/lib/libnvrtc.so.*"):
        found.setdefault(path.parts[-5], str(path.resolve()))
    return {version: os.path.realpath(path) for version, path in found.items()}


NVRTCS = libraries()
NEWEST = next((path for path in NVRTCS.values() if path.endswith(".13")), None)
TWELVE = next((path for path in NVRTCS.values() if path.endswith(".12")), None)
if NEWEST is None:
    pytest.skip("no NVRTC here", allow_module_level=True)
needs_twelve = pytest.mark.skipif(TWELVE is None, reason="there is no NVRTC 12 here")


class Ended:
    """A program's end: its output, the calls of each real library's stand-in, what else it said."""

    def __init__(self, done):
        self.status, self.out = done.returncode, done.stdout
        lines = [(line, LINE.match(line)) for line in done.stderr.splitlines()]
        self.errors = [line for line, match in lines if not match]
        self.lines = [match for _, match in lines if match]
        self.compiles = "; ".join(match[3] for match in self.lines if match[3])  # "4 hits, 1 built"
        self.calls = {}
        for match in self.lines:
            words = match[2].split()
            counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            self.calls[os.path.realpath(match[1])] = counts

    @property
    def answers(self):
        """Of nvrtc_caller.py, and the libraries that the loader says they are from."""
        answers = json.loads(self.out)
        return [each.pop("from", None) for each in answers], answers


@pytest.fixture
def runtime(tmp_path):
    """The folder of XDG_RUNTIME_DIR."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def run(tmp_path, runtime):
    """Runs a command beneath the audit module, or without it (`mode` None)."""

    def run(*command, mode="trace", audit=str(AUDIT), prefix=(), **changes):
        beneath = {} if mode is None else {"LD_AUDIT": audit, "KILN_NVRTC_STANDIN": mode}
        env = environment(tmp_path, **{"XDG_RUNTIME_DIR": str(runtime), **beneath, **changes})
        done = subprocess.run(
            [*prefix, *command], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )
        return Ended(done)

    return run


@pytest.fixture
def caught(run):
    """Runs nvrtc_caller.py with and without, which answers the same; returns the run with, and its answers."""

    def caught(*names, **changes):
        ended = run(*CALLER, *names, **changes)
        assert ended.status == 0, ended.errors
        origins, answers = ended.answers
        assert answers == run(*CALLER, *names, mode=None, **changes).answers[1]
        return ended, origins, answers

    return caught


@pytest.fixture
def standins(runtime):
    """The files in the private folder."""
    return lambda: sorted((runtime / "kiln-standin").iterdir())


@pytest.fixture(scope="session")
def compiler():
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("there is no C compiler here")
    return lambda *arguments: subprocess.run([found, *map(str, arguments)], check=True)


@pytest.fixture
def of_tomorrow(tmp_path, compiler):
    """Builds libnvrtc.so.99 in a folder of that name."""

    def build(name="tomorrow", *options, version="libnvrtc.so.99"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "map").write_text(f"{version} {{ global: nvrtc*; __nvrtc*; local: *; }};\n")
        library = folder / "libnvrtc.so.99"
        compiler("-shared", "-fPIC", "-w", PROGRAMS / "nvrtc_of_tomorrow.c", "-o", library, *options,
                 "-Wl,-soname,libnvrtc.so.99", f"-Wl,--version-script={folder / 'map'}")
        return str(library)

    return build


# ---- Programs of Python that call an NVRTC

SETUP = f"""
import ctypes, json, os, sys, threading, time
sys.path.insert(0, {str(PROGRAMS)!r})
from nvrtc import Program, compiled, forked, workers
K = 'extern "C" __global__ void k(float* x) {{{{ x[threadIdx.x] *= {{}}; }}}}'
SM = "-arch=sm_90"
SINES = "".join(f" a += sin(a * {{i}}.5);" for i in range(30000))
ENDLESS = 'extern "C" __global__ void f(double* x) {{ double a = *x;' + SINES + " *x = a; }}  // SECRET"  # takes minutes
"""
SMALL = "print(json.dumps(compiled(nvrtc, K.format(2), SM)))"


@pytest.fixture
def program(run, tmp_path):
    """Runs code beneath the stand-in of `library`; its printed JSON lines are `said`."""

    def program(code, library=NEWEST, mode="trace", status=0, **changes):
        text = f"{SETUP}nvrtc = ctypes.CDLL({library!r})\n{textwrap.dedent(code)}"
        ended = run(sys.executable, "-c", text, mode=mode, **changes)
        assert ended.status == status, ended.errors
        ended.said = [json.loads(line) for line in ended.out.splitlines()]
        return ended

    return program


@pytest.fixture
def alike(program):
    """The same, and that the program says the same without any stand-in."""

    def alike(code, library=NEWEST, without=None, **changes):
        ended = program(code, library, **changes)
        assert ended.said == program(code, library, mode=without, **changes).said
        return ended

    return alike


def statistics(tmp_path):
    env = environment(tmp_path)
    done = subprocess.run([KILN, "stats", "--json"], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["counters"]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return not file.read().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False
