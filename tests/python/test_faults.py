"""What goes wrong, and what Python sees of it."""

import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import KIT, ROOT, WITHOUT_TORCH, environment, needs_torch

SETUP = """
    import kiln
    SOURCE = 'extern "C" __global__ void fill(float* y, float x) { *y = x; }'
"""
FAKE = str(KIT / "libkiln-fake-nvrtc.so")


def raised(call):
    """Code that prints the class, the code and the message of what `call` raises."""
    return f"""
    try:
        {call}
        print("nothing was raised")
    except kiln.Error as error:
        print(type(error).__name__, error.code, [c.__name__ for c in type(error).__mro__[1:4]])
        print(error)
"""


def test_a_failed_compilation_has_exactly_the_compilers_log(nvrtc, run):
    said = run("""
    import pickle
    wrong = '#warning "größer"\\n__global__ void f() { unknown(); }\\n'
    try:
        kiln.Kernel(wrong, file_name="mine.cu").prepare()
    except kiln.CompileFailed as error:
        first, _, rest = str(error).partition("\\n")
        assert first.startswith("mine.cu (key "), first
        assert error.log == rest and error.log.startswith("mine.cu(1): warning"), error.log
        assert "größer" in error.log and 'identifier "unknown" is undefined' in error.log
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.log, copy.code) == (str(error), error.log, 3)
        assert kiln.CompileFailed("text").log == ""
    try:
        kiln.Kernel("wrong", file_name="two\\nlines.cu").prepare()
    except kiln.CompileFailed as error:
        assert error.log.startswith("two_lines.cu(1): error: "), error.log
        print("seen")
    """)
    assert said == "seen"


@pytest.mark.parametrize(
    "call, settings, name, bases, says",
    [
        ("kiln.Kernel(SOURCE).prepare(7)", {}, "InvalidArgument 1", "ValueError", "device 7"),
        ("kiln.configure(jobs=-1); kiln.devices()", {}, "InvalidArgument 1", "", "jobs: '-1'"),
        ("kiln.configure(attention='fast')", {}, "InvalidArgument 1", "", "'fast'"),
        ("kiln.devices(); kiln.configure(jobs=1)", {}, "InvalidArgument 1", "", "first use"),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_NVRTC": "/nowhere"}, "Unavailable 11", "",
         "KILN_NVRTC is /nowhere"),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_DRIVER": "/nowhere.so"}, "Unavailable 11", "",
         "/nowhere.so"),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_SIMULATED_DEVICES": ""}, "Unavailable 11", "",
         "no device"),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_WORKER": "/bin/nowhere", "KILN_NVRTC": FAKE},
         "Unavailable 11", "", "/bin/nowhere"),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_NO_JIT": "1", "KILN_NVRTC": FAKE},
         "Unavailable 11", "", "KILN_NO_JIT"),
        ("kiln.configure(compile_timeout=1); kiln.Kernel(SOURCE).prepare()",
         {"KILN_NVRTC": FAKE, "KILN_FAKE_NVRTC": "hang"}, "Timeout 5", "TimeoutError", ""),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_NVRTC": FAKE, "KILN_FAKE_NVRTC": "crash"},
         "WorkerCrashed 4", "", ""),
        ("kiln.Kernel(SOURCE).prepare()", {"KILN_SIMULATED_FAULTS": "cuModuleLoadData=2,"
         "cuModuleLoadDataEx=2,cuLibraryLoadData=2", "KILN_NVRTC": FAKE}, "DeviceError 12", "", ""),
    ],
)
def test_each_failure_is_an_exception_of_its_own(call, settings, name, bases, says, run):
    said = run(raised(call), **settings)
    first, _, message = said.partition("\n")
    assert first.startswith(name), said
    assert bases in first, said
    assert says in message, said


def test_every_class_has_the_code_of_c_and_takes_a_message():
    from kiln import errors

    assert [each.code for each in errors.CLASSES] == list(range(len(errors.CLASSES)))
    for each in errors.CLASSES:
        error = each("what happened")
        assert isinstance(error, errors.Error) and str(error) == "what happened"
    header = (ROOT / "src/kiln/c.h").read_text()
    codes = re.search(r"enum \{(\s+KILN_INVALID_ARGUMENT = 1,.*?)\}", header, re.S)[1]
    names = [each.title().replace("_", "") for each in re.findall(r"KILN_(\w+)", codes)]
    of_python = {"Device": "DeviceError", "Io": "IoError", "Forked": "ForkError"}
    names = [of_python.get(name, name) for name in names]
    assert ["Error", *names] == [each.__name__ for each in errors.CLASSES]
    thrown = (ROOT / "python/ffi/call.cc").read_text()
    thrown = re.search(r"kClasses\{(.*?)\}", thrown, re.S)[1]
    assert ["Error", *names] == re.findall(r'"(\w+)"', thrown)


def test_without_builds_what_an_earlier_process_built_is_found(nvrtc, run):
    build = "    kiln.Kernel(SOURCE).prepare(); print(kiln.statistics()['compiled'])"
    assert run(build) == "1"
    find = "    kiln.Kernel(SOURCE).prepare(); print(kiln.statistics()['disk_hits'])"
    assert run(find, KILN_NO_JIT="1") == "1"


@pytest.mark.skipif(
    not (KIT.parent / "bin/kiln-remote").exists(), reason="kiln-remote was not built: no libcurl with headers"
)
def test_what_a_process_has_built_is_uploaded_at_its_end_and_found_by_other_machines(nvrtc, run, tmp_path):
    code = f"""
    kiln.configure(remote="file://{tmp_path}/shared;unsigned=1", remote_mode="MODE", remote_wait=20)
    kiln.Kernel(SOURCE).prepare()
    counts = kiln.statistics()
    print(counts["compiled"], counts["remote_hits"], counts["disk_hits"])
"""
    assert run(code.replace("MODE", "rw"), KILN_CACHE_DIR=str(tmp_path / "builder")) == "1 0 0"
    node = {"KILN_CACHE_DIR": str(tmp_path / "node"), "KILN_NO_JIT": "1"}
    assert run(code.replace("MODE", "r"), **node) == "0 1 0"
    assert run(code.replace("MODE", "r"), **node) == "0 0 1"


def test_a_home_that_cannot_be_written_has_its_cache_elsewhere_and_a_named_folder_none(nvrtc, run, tmp_path):
    code = '''
    kiln.Kernel(SOURCE).prepare()
    counts = kiln.statistics()
    print(counts["compiled"], counts["not_stored"])
'''
    runtime = tmp_path / "runtime"
    runtime.mkdir(0o700)
    home = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": None, "XDG_RUNTIME_DIR": str(runtime)}
    assert [run(code, KILN_CACHE_DIR=None, **home) for _ in range(2)] == ["1 0", "0 0"]
    assert (runtime / "kiln/cache/objects").is_dir()
    assert run(code, KILN_CACHE_DIR="/proc/nowhere", **home) == "1 1"


def test_eight_processes_at_once_build_once(nvrtc, tmp_path):
    code = textwrap.dedent(SETUP) + textwrap.dedent(
        """
        kiln.Kernel(SOURCE).prepare()
        print(kiln.statistics()["compiled"])
        """
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WITHOUT_TORCH + code], env=environment(tmp_path), stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(outputs) == ["0"] * 7 + ["1"]


def test_threads_run_on_while_one_builds(run):
    said = run("""
    import threading, time
    kiln.configure(compile_timeout=2)
    done = []
    def build():
        try:
            kiln.Kernel(SOURCE).prepare()
        except kiln.Timeout as error:
            done.append(error)
    thread = threading.Thread(target=build)
    thread.start()
    began, longest, last = time.monotonic(), 0, time.monotonic()
    while thread.is_alive() and time.monotonic() - began < 20:
        time.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert done and longest < 1, (done, longest)
    print("ran on")
    """, KILN_NVRTC=FAKE, KILN_FAKE_NVRTC="hang")
    assert said == "ran on"


@pytest.mark.parametrize("handler", ["Python's", "the program's"])
def test_ctrl_c_ends_a_call_that_builds_within_two_seconds(handler, tmp_path):
    code = textwrap.dedent(SETUP) + textwrap.dedent(
        """
        import sys, time
        kiln.devices()
        print("builds", flush=True)
        try:
            kiln.Kernel(SOURCE).prepare()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(3)
        """
    )
    if handler == "the program's":
        code = code.replace("KeyboardInterrupt:", "Stop:").replace(
            "import sys, time",
            "import sys, time, signal\n"
            "class Stop(Exception): pass\n"
            "def stop(*_): raise Stop\n"
            "signal.signal(signal.SIGINT, stop)",
        )
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TORCH + code],
        env=environment(tmp_path, KILN_NVRTC=FAKE, KILN_FAKE_NVRTC="hang"),
        stdout=subprocess.PIPE, text=True,
    )
    try:
        assert process.stdout.readline() == "builds\n"
        time.sleep(1)  # the worker hangs by now
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - began < 2
        assert process.wait(timeout=5) == 3
        assert time.monotonic() - began < 4, "it ends although the build had not"
    finally:
        process.kill()
        process.communicate()


def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(nvrtc, run):
    said = run("""
    import os
    k = kiln.Kernel(SOURCE).prepare()
    import numpy as np
    from kiln._library import library
    library().use_cpu_device(0)
    y = np.zeros(1, np.float32)
    pid = os.fork()
    if pid == 0:
        told = 0
        for call in (lambda: k(1, 1, y, 1.0), kiln.statistics, kiln.devices,
                     lambda: kiln.Kernel("other").prepare(), lambda: k.global_variable("x"),
                     lambda: kiln.configure(jobs=1)):
            try:
                call()
            except kiln.ForkError as error:
                told += error.code == 13 and "'spawn'" in str(error)
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
    k(1, 1, y, 1.0)
    print("goes on")
    """)
    assert said == "goes on"


def test_forked_workers_that_load_data_come_and_go(nvrtc, run):
    said = run("""
    import multiprocessing
    kiln.Kernel(SOURCE).prepare()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(pool.map(abs, range(-4, 4))))
        pool.close()
        pool.join()
    kiln.Kernel(SOURCE.replace("fill", "other")).prepare()
    """)
    assert said == "16"


@needs_torch
def test_torchs_data_loader_with_workers_works_beside_kiln(nvrtc, run):
    said = run("""
    from torch.utils.data import DataLoader
    kiln.Kernel(SOURCE).prepare()
    for _ in range(2):
        loader = DataLoader(range(8), batch_size=4, num_workers=2, multiprocessing_context="fork")
        print(*(batch.tolist() for batch in loader))
    kiln.Kernel(SOURCE.replace("fill", "other")).prepare()
    """, torch=True)
    assert said == "\n".join(["[0, 1, 2, 3] [4, 5, 6, 7]"] * 2)


def test_a_child_forked_before_the_first_use_has_kiln_of_its_own(nvrtc, run):
    said = run("""
    import os
    from kiln._library import library
    library()  # loaded, and nothing is open
    pid = os.fork()
    if pid == 0:
        kiln.Kernel(SOURCE).prepare()
        os._exit(kiln.statistics()["loaded"])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    kiln.Kernel(SOURCE).prepare()
    print(kiln.statistics()["disk_hits"])
    """)
    assert said == "1"
