"""The stand-in for NVRTC beneath programs: who calls it, which library it is for, and what keeps a program
running where it cannot be.

What a program prints must be the same with and without it; that it was called is proved by the line that a
stand-in prints at the end with KILN_NVRTC_STANDIN=trace.
"""

import ctypes
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from beneath import (  # noqa: F401: fixtures, too
    AUDIT, CALLER, FUNCTIONS, KILN, LINE, NEWEST, NVRTCS, PROGRAMS, TWELVE,
    caught, compiler, needs_twelve, of_tomorrow, run, runtime, standins,
)
from conftest import KIT, environment


# ---- Who calls it


@pytest.mark.parametrize("version", NVRTCS)
def test_a_library_opened_by_its_path_is_stood_in_for_and_has_the_same_functions(version, caught):
    path = NVRTCS[version]
    ended, (origin,), (answer,) = caught(path)
    assert ended.calls[path].keys() >= FUNCTIONS
    assert answer["codes"] == [0] * 6 and ".target sm_90" in answer["ptx"]
    assert "kiln_standin_identity" not in answer["functions"]
    assert origin != path, "the loader knows the stand-in by its own path"
    assert ended.errors == []


def test_a_library_searched_by_name_is_stood_in_for(caught):
    folder, name = os.path.split(NEWEST)
    ended, (origin,), _ = caught(name, LD_LIBRARY_PATH=f"/nowhere:{folder}")
    assert ended.calls.keys() == {NEWEST}
    assert origin == NEWEST, "as without"


def test_a_program_linked_with_an_rpath_calls_the_stand_in(tmp_path, compiler, run):
    folder, name = os.path.split(NEWEST)
    for tags, other in (("--disable-new-dtags", TWELVE), ("--enable-new-dtags", None)):
        program = tmp_path / tags
        compiler(PROGRAMS / "nvrtc_linked.c", "-o", program, f"-L{folder}", f"-l:{name}",
                 f"-Wl,-rpath,{folder}", f"-Wl,{tags}", "-Wl,--allow-shlib-undefined")
        path = os.path.dirname(other) if other else ""
        ended = run(program, LD_LIBRARY_PATH=path)
        assert ended.calls == {NEWEST: {"nvrtcVersion": 1}}
        assert ended.out == run(program, mode=None, LD_LIBRARY_PATH=path).out
        assert ended.errors == [], "no line about versions of symbols"


def test_one_that_is_preloaded_is_stood_in_for(run):
    code = "import ctypes; a = ctypes.c_int(); print(ctypes.CDLL(None).nvrtcVersion(*[ctypes.byref(a)] * 2))"
    ended = run(sys.executable, "-c", code, LD_PRELOAD=NEWEST)
    assert (ended.out, ended.calls) == ("0\n", {NEWEST: {"nvrtcVersion": 1}})


def test_each_library_has_a_file_of_its_own_that_is_not_written_again(caught, standins):
    ended, _, _ = caught(*NVRTCS.values())
    files = {each: each.stat().st_ino for each in standins()}
    assert len(files) == len(ended.calls) == len(NVRTCS)
    caught(*NVRTCS.values())
    assert {each: each.stat().st_ino for each in standins()} == files


@needs_twelve
def test_two_major_versions_in_one_process_have_a_stand_in_each(caught):
    ended, origins, (one, two, again) = caught(TWELVE, NEWEST, TWELVE)
    assert ended.calls.keys() == {TWELVE, NEWEST}
    assert (one["version"][0], two["version"][0]) == (12, 13)
    assert one == again and origins[0] == origins[2] != origins[1]


def test_names_of_one_library_are_one_stand_in(tmp_path, caught):
    link = tmp_path / "libnvrtc.so"
    link.symlink_to(NEWEST)
    folder, name = os.path.split(NEWEST)
    names = (str(link), f"{folder}/../{os.path.basename(folder)}/{name}", NEWEST, name)
    ended, origins, _ = caught(*names, LD_LIBRARY_PATH=folder)
    assert len(set(origins)) == len(ended.lines) == 1
    assert ended.calls[NEWEST]["nvrtcCompileProgram"] == len(names)


def test_one_that_is_closed_and_opened_again_still_works(caught):
    folder, name = os.path.split(NEWEST)
    ended, _, answers = caught(NEWEST, "close", NEWEST, "close", name, LD_LIBRARY_PATH=folder)
    assert answers[0] == answers[1] == answers[2]
    assert len(ended.lines) == 1 and ended.calls[NEWEST]["nvrtcCompileProgram"] == 3


def test_threads_that_call_first_at_once_reach_the_real_library(run):
    code = f"""
import ctypes, threading
nvrtc, barrier, said = ctypes.CDLL({NEWEST!r}), threading.Barrier(32), []
def call():
    major = ctypes.c_int()
    barrier.wait()
    said.append((nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(ctypes.c_int())), major.value))
threads = [threading.Thread(target=call) for _ in range(32)]
for each in threads: each.start()
for each in threads: each.join()
print(set(said))
"""
    ended = run(sys.executable, "-c", code)
    assert (ended.out, ended.calls) == ("{(0, 13)}\n", {NEWEST: {"nvrtcVersion": 32}})
    assert run(sys.executable, "-c", code, mode="on").out == ended.out


def test_children_have_it_too(run):
    ended = run("sh", "-c", " ".join((*CALLER, NEWEST, ">/dev/null; true")))
    assert ended.calls[NEWEST].keys() >= FUNCTIONS


def test_cuda_core_and_cuda_bindings_call_the_stand_in(run):
    if find_spec("cuda") is None or find_spec("cuda.core") is None:
        pytest.skip("cuda.core is not installed")
    code = """
import hashlib
from cuda.bindings import nvrtc
from cuda.core import Program, ProgramOptions
source = 'template <class T> __global__ void scale(T* x) { x[threadIdx.x] *= 2; }'
names = ["scale<float>"]
made = Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin", name_expressions=names)
print(made.symbol_mapping, hashlib.sha256(bytes(made.code)).hexdigest())
error, program = nvrtc.nvrtcCreateProgram(b"int x = y;", b"wrong.cu", 0, [], [])
print(nvrtc.nvrtcCompileProgram(program, 0, []), nvrtc.nvrtcGetProgramLogSize(program))
"""
    ended = run(sys.executable, "-c", code)
    assert ended.status == 0, ended.errors
    (counts,) = ended.calls.values()
    assert counts["nvrtcCompileProgram"] == 2 and counts["nvrtcGetLoweredName"] == 1
    assert "NVRTC_ERROR_COMPILATION" in ended.out
    assert ended.out == run(sys.executable, "-c", code, mode=None).out


def test_torchs_table_of_functions_is_the_stand_ins(tmp_path, run):
    """libcaffe2_nvrtc.so has an RPATH to the folders of NVIDIA's wheels, here with the NVRTC of the tests."""
    torch = find_spec("torch")
    library = torch and Path(torch.origin).parent / "lib/libcaffe2_nvrtc.so"
    if not library or not library.exists():
        pytest.skip("torch is not installed, or has no CUDA")
    lib, wheel = tmp_path / "site/torch/lib", tmp_path / "site/nvidia/cu13/lib"
    lib.mkdir(parents=True)
    wheel.mkdir(parents=True)
    shutil.copy(library, lib)
    for file in Path(NEWEST).parent.glob("libnvrtc*"):
        (wheel / file.name).symlink_to(file)
    (lib / "libcuda.so.1").symlink_to(KIT / "libkiln-simulated-driver.so")
    code = f"""
import ctypes, sys
sys.path.insert(0, {str(PROGRAMS)!r})
from nvrtc_caller import compiled, place_of
library = ctypes.CDLL({str(lib / library.name)!r})
library.load_nvrtc.restype = ctypes.POINTER(ctypes.c_void_p)
table, functions = library.load_nvrtc(), {{}}
for i in range(14):
    name = place_of(table[i])[1]
    functions[name] = ctypes.CFUNCTYPE(ctypes.c_int)(table[i])
class Nvrtc:
    def __getattr__(self, name): return functions.get(name) or getattr(library, name)
print(compiled(Nvrtc()))
"""
    ended = run(sys.executable, "-c", code)
    assert ended.status == 0, ended.errors
    assert ended.calls[NEWEST].keys() >= FUNCTIONS
    assert ended.out == run(sys.executable, "-c", code, mode=None).out


# ---- Which libraries it is for


def test_a_major_version_to_come_is_stood_in_for_whatever_its_functions_take(tmp_path, of_tomorrow, compiler, run):
    code = f"""
from ctypes import *
class Three(Structure):
    _fields_ = [("first", c_long), ("second", c_long), ("third", c_double)]
nvrtc = CDLL({of_tomorrow()!r})
function, sum = nvrtc.__getattr__("__nvrtcCPEx"), nvrtc.__getattr__("__nvrtcNvvmHandle")
function.restype, sum.restype, nvrtc.nvrtcGetErrorString.restype = Three, c_double, c_char_p
kinds = [c_long, c_double, c_long, c_float] + [c_long, c_double] * 5 + [c_double] * 2 + [Three, c_longdouble]
function.argtypes = kinds
for _ in range(2):
    made = function(1, .5, 2, .25, 3, 1.5, 4, 2.5, 5, 3.5, 6, 4.5, 7, 5.5, 6.5, 7.5, Three(9, 4, .125), 8.5)
    print(made.first, made.second, made.third, sum(4, c_double(1), c_double(2), c_double(3), c_double(4)))
print(nvrtc.nvrtcGetErrorString(0), nvrtc.nvrtcCompileProgram())
"""
    ended = run(sys.executable, "-c", code)
    (counts,) = ended.calls.values()
    assert counts == {"__nvrtcCPEx": 2, "__nvrtcNvvmHandle": 2, "nvrtcCompileProgram": 1, "nvrtcGetErrorString": 1}
    untraced = run(sys.executable, "-c", code, mode="on")
    assert untraced.lines == [] and untraced.status == 0
    assert ended.out == untraced.out == run(sys.executable, "-c", code, mode=None).out
    assert ended.out.splitlines()[0].endswith(" 1234.0")


def test_a_library_with_a_function_that_the_stand_in_lacks_is_left_alone(of_tomorrow, caught):
    newer = of_tomorrow("newer", "-DWITH_ANOTHER_FUNCTION")
    ended, (origin,), _ = caught(newer)
    assert ended.calls == {} and origin == newer
    assert ended.errors == [f"kiln: no stand-in for {newer}: it exports what the stand-in lacks"]


def test_a_library_whose_symbols_have_another_version_is_left_alone(of_tomorrow, caught):
    other = of_tomorrow("other", version="NVRTC_99")
    ended, (origin,), _ = caught(other)
    assert ended.calls == {} and origin == other
    assert "another version than its name" in ended.errors[0]


def test_what_is_no_nvrtc_gives_the_loaders_own_error(tmp_path, compiler, caught):
    (tmp_path / "libnvrtc.so.13").write_text("no library")
    (tmp_path / "libnvrtc.so.12").mkdir()
    with open(NEWEST, "rb") as real:
        (tmp_path / "libnvrtc.so.11").write_bytes(real.read(500))
    compiler("-shared", "-w", "-xc", "/dev/null", "-o", tmp_path / "libnvrtc.so.10")
    names = [str(tmp_path / f"libnvrtc.so.{major}") for major in (13, 12, 11, 9)]
    ended, _, answers = caught(*names, str(tmp_path / "libnvrtc.so.10"), NEWEST)
    assert [("error" in each) for each in answers] == [True] * 4 + [False] * 2
    assert ended.calls.keys() == {NEWEST}


def test_the_real_library_finds_its_own_files_and_is_not_caught_itself(tmp_path, caught):
    """NVRTC looks for its builtins beside itself; here nothing else says where they are."""
    for version, path in NVRTCS.items():
        ended, _, (answer,) = caught(path, LD_LIBRARY_PATH=None)
        assert answer["codes"] == [0] * 6, version
        assert len(ended.lines) == 1


def test_a_worker_of_kiln_is_not_beneath_it(tmp_path, run):
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void k(float* x) { *x = 1; }\n')
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\nenv >'{tmp_path}/environment'\nexec '{KILN.parent}/kiln-worker' \"$@\"\n")
    worker.chmod(0o700)
    ended = run(KILN, "compile", "--arch", "9.0", "kernel.cu", KILN_WORKER=str(worker))
    assert ended.status == 0 and "compiled" in ended.out, ended.errors
    assert ended.lines == []
    variables = (tmp_path / "environment").read_text()
    assert "PWD=" in variables and "LD_AUDIT" not in variables


# ---- Where it cannot be


def test_off_turns_it_off(run, runtime):
    ended = run(*CALLER, NEWEST, mode="off")
    assert ended.lines == ended.errors == [] and list(runtime.iterdir()) == []
    assert ended.out == run(*CALLER, NEWEST, mode=None).out


def test_a_loader_of_another_interface_is_refused():
    """1 is glibc's before 2.35, beneath which each call through a PLT would take longer."""
    audit = ctypes.CDLL(str(AUDIT))
    assert [audit.la_version(version) for version in (0, 1, 2, 3)] == [0, 0, 2, 0]


def test_a_module_that_is_gone_leaves_a_program_that_runs_as_without(tmp_path, run):
    ended = run(*CALLER, NEWEST, audit=str(tmp_path / "libkiln-audit.so"))
    assert ended.status == 0 and ended.lines == []
    assert all("cannot be loaded as audit interface" in line for line in ended.errors)
    assert ended.out == run(*CALLER, NEWEST, mode=None).out


def test_a_library_that_goes_before_the_first_call_is_an_internal_error(of_tomorrow, run):
    path = of_tomorrow()
    code = f"""
import ctypes, os
nvrtc = ctypes.CDLL({path!r})
os.unlink({path!r})
nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
print(nvrtc.nvrtcCompileProgram(), nvrtc.nvrtcGetErrorString(11))
"""
    ended = run(sys.executable, "-c", code, mode="on")
    assert (ended.status, ended.out) == (0, "11 b'NVRTC_ERROR_INTERNAL_ERROR'\n")
    assert len(ended.errors) == 2 and "No such file" in ended.errors[0]


def test_a_stand_in_that_is_gone_or_damaged_is_made_again(caught, standins):
    caught(NEWEST)
    (file,) = standins()
    whole = file.read_bytes()
    half = len(whole) // 2
    damages = {
        "removed": file.unlink,
        "truncated": lambda: file.write_bytes(whole[:half]),
        "empty": lambda: file.write_bytes(b""),
        "a byte": lambda: file.write_bytes(whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]),
        "zeros": lambda: file.write_bytes(bytes(len(whole))),
        "no mode": lambda: file.chmod(0),
    }
    for damage, do in damages.items():
        do()
        ended, _, _ = caught(NEWEST)
        assert NEWEST in ended.calls, damage
        assert standins() == [file], damage
    assert file.read_bytes() == whole
    file.unlink()
    file.symlink_to(NEWEST)
    ended, _, _ = caught(NEWEST)
    assert NEWEST in ended.calls and file.read_bytes() == whole
    file.unlink()
    file.mkdir()
    ended, _, _ = caught(NEWEST)
    assert NEWEST in ended.calls and file.is_dir()


@pytest.mark.parametrize("how", ("writable by all", "readable by all", "a link", "another's", "below another's"))
def test_a_folder_that_is_not_private_is_not_used(how, runtime, tmp_path, caught):
    folder = runtime / "kiln-standin"
    if how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif how == "below another's":
        runtime.chmod(0o777)
    else:
        folder.mkdir(mode=0o700)
        folder.chmod({"writable by all": 0o777, "readable by all": 0o755}.get(how, 0o700))
    if how == "another's":
        if os.geteuid() != 0:
            pytest.skip("only root gives folders away")
        os.chown(folder, 65534, 65534)
    ended, (origin,), _ = caught(NEWEST)
    assert NEWEST in ended.calls and not origin.startswith(str(tmp_path))
    assert not folder.exists() or list(folder.iterdir()) == []


def test_where_no_folder_can_have_it_it_is_in_memory(caught, runtime, tmp_path):
    folders = [Path(root) / "kiln-standin-0" for root in ("/tmp", "/var/tmp")]
    mount = "mkdir -p -m 0700 {0} && mount -t tmpfs -o noexec,mode=0700 none {0} && "
    mounts = "".join(mount.format(each) for each in folders)
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c", mounts + 'exec "$@"', "sh")
    if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no mount namespaces here")
    folder, name = os.path.split(NEWEST)
    link = tmp_path / "libnvrtc.so"
    link.symlink_to(NEWEST)
    names = (NEWEST, "close", str(link), name)
    ended, origins, _ = caught(*names, prefix=prefix, XDG_RUNTIME_DIR="/nowhere", LD_LIBRARY_PATH=folder)
    assert ended.calls[NEWEST]["nvrtcCompileProgram"] == 3
    assert len(set(origins)) == len(ended.lines) == 1 and origins[0].startswith("/proc/self/")


def test_processes_that_start_at_once_share_one_file(run, runtime, standins, tmp_path):
    code = f"import ctypes; a = ctypes.c_int(); print(ctypes.CDLL({NEWEST!r}).nvrtcVersion(*[ctypes.byref(a)] * 2))"
    env = environment(tmp_path, XDG_RUNTIME_DIR=str(runtime), LD_AUDIT=str(AUDIT), KILN_NVRTC_STANDIN="trace")
    for damaged in (False, True):
        children = [
            subprocess.Popen(
                [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(64)
        ]
        for child in children:
            said, errors = child.communicate(timeout=120)
            assert (child.returncode, said) == (0, "0\n") and LINE.match(errors.strip()), errors
        (file,) = standins()
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
        if not damaged:
            file.write_bytes(b"damaged")


def test_what_killed_processes_left_and_what_is_not_used_is_removed(runtime, caught, standins):
    folder = runtime / "kiln-standin"
    folder.mkdir(mode=0o700)
    left = {".new-0": 120, ".new-1": 0, "1-libnvrtc.so.13": 40 * 24 * 3600, "2-libnvrtc.so.13": 24 * 3600}
    for name, age in left.items():
        (folder / name).write_text("")
        os.utime(folder / name, (time.time() - age,) * 2)
    caught(NEWEST)
    names = [each.name for each in standins()]
    assert len(names) == 3 and {".new-1", "2-libnvrtc.so.13"} < set(names)


# ---- kiln run


@pytest.mark.parametrize("kiln", ([KILN], [sys.executable, "-m", "kiln"]), ids=("program", "package"))
class TestRun:
    def test_the_program_and_its_children_are_prepared(self, kiln, run):
        command = ("sh", "-c", " ".join((*CALLER, NEWEST)) + "; exit 7")
        ended = run(*kiln, "run", "--", *command, mode=None, KILN_NVRTC_STANDIN="trace")
        assert ended.status == 7 and NEWEST in ended.calls
        assert ended.answers[1] == run(*CALLER, NEWEST, mode=None).answers[1]

    def test_a_shell_reads_the_printed_lines(self, kiln, run, tmp_path):
        others = f"/of another's/liba.so:{AUDIT.parent}/none.so"
        ended = run(*kiln, "run", "--print-env", mode=None, LD_AUDIT=others)
        assert ended.status == 0
        script = tmp_path / "script"
        script.write_text(ended.out + "printf '%s' \"$LD_AUDIT\"\n")
        assert run("sh", script, mode=None).out == f"{others}:{AUDIT}"
        again = run(*kiln, "run", "--print-env", mode=None, LD_AUDIT=str(AUDIT))
        assert again.out == f"export LD_AUDIT={AUDIT}\n", "once is enough"

    def test_wrong_usage_is_refused(self, kiln, run):
        for arguments in ((), ("--",), ("--jobs", "3", "true")):
            ended = run(*kiln, "run", *arguments, mode=None)
            assert ended.status == 2 and ended.out == "" and "run" in ended.errors[0], arguments


def test_the_kiln_programs_own_options_are_for_the_program_that_it_runs(run, tmp_path):
    folder = tmp_path / "of the job"
    script = 'echo "$KILN_CACHE_DIR"; echo "$@"'
    ended = run(KILN, "run", "--cache-dir", folder, "--", "sh", "-c", script, "sh", "--json")
    assert (ended.status, ended.out) == (0, f"{folder}\n--json\n"), ended.errors
    printed = run(KILN, "run", "--print-env", "--json", mode=None)
    assert json.loads(printed.out) == {"LD_AUDIT": str(AUDIT)}
    assert run(KILN, "run", "--json", "--", "true", mode=None).status == 2


def test_the_kiln_program_without_its_module_runs_the_program_and_says_so(run, tmp_path):
    for file in ("kiln", "kiln-worker"):
        shutil.copy(KILN.parent / file, tmp_path)
    ended = run(tmp_path / "kiln", "run", "--", *CALLER, NEWEST, mode=None)
    assert ended.status == 0 and ended.answers[1] == run(*CALLER, NEWEST, mode=None).answers[1]
    (line,) = ended.errors
    assert "nothing stands in for NVRTC: there is no " in line and "reinstall" in line
    assert run(tmp_path / "kiln", "run", "--print-env", mode=None).status == 3


@pytest.mark.parametrize("name", ("PIPE", "XFSZ", "TERM"))
def test_the_program_gets_signals_as_without(name, run):
    """A shell cannot reset one that it was given ignored, nor get one that is blocked."""
    ended = run(KILN, "run", "--", "sh", "-c", f"trap - {name}; kill -{name} $$; exit 0", mode=None)
    assert ended.status == -getattr(signal, f"SIG{name}")
