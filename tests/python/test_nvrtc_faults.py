"""What goes wrong beneath `kiln run`, and what becomes of the program: as without Kiln, or a result of NVRTC's that
says what it was."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from beneath import KIT, NEWEST, SMALL, alike, compiler, program, run, runtime  # noqa: F401


# ---- What NVRTC itself does


def test_what_is_about_files_or_other_outputs_is_passed(alike, tmp_path):
    code = """
        print(json.dumps(compiled(nvrtc, K.format(2), SM, "--ptxas-options=--nope")))
        print(json.dumps(compiled(nvrtc, K.format(2), "-arch=compute_90", "--fdevice-syntax-only")))
        print(json.dumps(compiled(nvrtc, K.format(2), SM, "--time=times.csv")[0]))
        print(json.dumps([os.path.exists("times.csv"), os.system("rm times.csv")]))
        print(json.dumps(compiled(nvrtc, '#include "a.h"\\n' + K.format(2), SM, "--pch", headers=[("a.h", "")])[0]))
        status = Program(nvrtc, K.format(2))
        print(json.dumps([status.compile(SM), nvrtc.nvrtcGetPCHCreateStatus(status.handle)]))
        print(json.dumps([status.output("CUBIN").hex(), status.compile(SM), status.destroy()]))
        print(json.dumps(Program(nvrtc, K.format(2), headers=[("a.h", ""), ("a.h", "")]).created))
    """
    ended = alike(code)
    assert ended.said[3] == [True, 0]
    assert ended.compiles == "1 hits, 1 built, 3 passed (option), 1 passed (ptxas)"


def test_without_a_worker_hits_are_served(alike):
    assert alike(SMALL, KILN_WORKER="/nowhere").compiles == "0 hits, 0 built, 1 passed (no_worker)"
    assert alike(SMALL).compiles == "0 hits, 1 built"
    assert alike(SMALL, KILN_WORKER="/nowhere").compiles == "1 hits, 0 built"


def test_a_child_forked_before_the_first_compile_has_kiln_of_its_own(alike):
    ended = alike("""
        made = Program(nvrtc, K.format(2))
        def child():
            print(json.dumps([made.compile(SM), made.output("CUBIN").hex(), compiled(nvrtc, K.format(3), SM)]), flush=True)
        forked(child)
        child()
    """)
    assert ended.compiles == "0 hits, 2 built; 2 hits, 0 built" and ended.said[0] == ended.said[1]


def test_children_forked_while_threads_compile_wait_for_none_of_them(program):
    """NVRTC itself hangs there, so there is no run without Kiln."""
    ended = program("""
        compiled(nvrtc, K.format(1), SM)
        def build(which):
            for i in range(4): compiled(nvrtc, K.format(100 * which + i), SM)
        threads = [threading.Thread(target=build, args=(each,)) for each in (1, 2, 3)]
        for each in threads: each.start()
        for _ in range(4): forked(lambda: print(json.dumps(compiled(nvrtc, K.format(2), SM)), flush=True))
        for each in threads: each.join()
        print(json.dumps(compiled(nvrtc, K.format(2), SM)))
    """)
    assert len(ended.said) == 5 and all(each == ended.said[4] for each in ended.said)
    assert ended.lines[4][3] == "0 hits, 14 built"
    assert all(line[3].endswith("1 passed (forked)") for line in ended.lines[:4])


@pytest.mark.parametrize("delay", range(0, 24, 3))  # in ms; each process opens Kiln once
def test_a_child_forked_while_a_thread_opens_kiln_compiles(delay, program):
    """NVRTC itself hangs there, too."""
    ended = program(f"""
        thread = threading.Thread(target=lambda: compiled(nvrtc, K.format(1), SM))
        thread.start()
        time.sleep({delay} / 1000)
        forked(lambda: print(json.dumps(compiled(nvrtc, K.format(2), SM)[0]), flush=True))
        thread.join()
    """)
    assert ended.said == [0]


def test_a_kiln_that_was_moved_goes_on_at_its_new_place(alike, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for name in ("bin/libkiln-audit.so", "bin/kiln-worker", "lib/libkiln.so.0.2"):
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(KIT.parent / name, old / name)
    beneath = {"audit": f"{old}/bin/libkiln-audit.so", "KILN_WORKER": None}
    assert alike(SMALL, **beneath).compiles == "0 hits, 1 built"
    moving = f"""
        if os.path.exists({str(old)!r}): os.rename({str(old)!r}, {str(new)!r})
        {SMALL}
    """
    ended = alike(moving, **beneath)
    assert ended.compiles == "" and any("there is no engine" in line for line in ended.errors)
    assert alike(SMALL, **beneath).lines == [], "the loader says that there is no such module"
    beneath["audit"] = f"{new}/bin/libkiln-audit.so"
    assert alike(SMALL, **beneath).compiles == "1 hits, 0 built"


# ---- Workers


def test_a_worker_that_is_killed_from_outside_is_followed_by_another_once(program):
    code = """
        def compile(source, kills):
            def kill():
                for _ in range(kills):
                    time.sleep(0.4)
                    for each in workers(): os.kill(each, 9)
            killer = threading.Thread(target=kill)
            killer.start()
            code, log, _, _ = compiled(nvrtc, source, SM)
            killer.join()
            print(json.dumps([code, log]))
        compiled(nvrtc, K.format(2), SM)
        compile(ENDLESS, 4)
        compile(ENDLESS.replace(SINES, SINES.partition(" a += sin(a * 60.5);")[0]), 1)
        compile(K.format(3), 0)
    """
    twice, once, never = program(code, KILN_COMPILE_TIMEOUT="60s").said
    assert twice[0] == 11 and "signal 9" in twice[1] and "the first try ended in the same way" in twice[1]
    assert once[0] == never[0] == 0


def test_a_worker_that_is_not_used_for_half_a_minute_ends(program, compiler, tmp_path):
    """By its own clock, which goes on at once when a file is there."""
    source = tmp_path / "clock.c"
    source.write_text(f"""
        #define _GNU_SOURCE
        #include <time.h>
        #include <unistd.h>
        #include <sys/syscall.h>
        int clock_gettime(clockid_t id, struct timespec* time) {{
          const int result = syscall(SYS_clock_gettime, id, time);
          if (id == CLOCK_MONOTONIC) time->tv_sec += access("{tmp_path}/27", F_OK) == 0 ? 27 : 0;
          if (id == CLOCK_MONOTONIC) time->tv_sec += access("{tmp_path}/4", F_OK) == 0 ? 4 : 0;
          return result;
        }}
    """)
    compiler("-shared", "-fPIC", source, "-o", tmp_path / "clock.so")
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\nLD_PRELOAD='{tmp_path}/clock.so' exec '{KIT.parent}/bin/kiln-worker' \"$@\"\n")
    worker.chmod(0o700)
    ended = program(f"""
        for seconds in (0, 27, 4):
            if seconds == 0: compiled(nvrtc, K.format(1), SM)
            else: open(f"{tmp_path}/{{seconds}}", "w").close()
            time.sleep(0.9)
            print(json.dumps(len(workers())))
        print(json.dumps(compiled(nvrtc, K.format(2), SM)[0]))
    """, KILN_WORKER=str(worker))
    assert ended.said == [1, 1, 0, 0] and ended.compiles == "0 hits, 2 built"


# ---- Programs at once


def test_programs_end_while_others_compile(alike):
    """Threads whose programs are other ones, and one thread that only makes and destroys some."""
    ended = alike("""
        said, built = {}, threading.Event()
        def build(which):
            for i in range(3): said[f"{which} {i}"] = compiled(nvrtc, K.format(10 * which + i), SM)
        def destroy():
            while not built.is_set(): assert Program(nvrtc, K.format(0)).destroy() == 0
        threads = [threading.Thread(target=build, args=(each,)) for each in range(8)]
        other = threading.Thread(target=destroy)
        for each in (other, *threads): each.start()
        for each in threads: each.join()
        built.set()
        other.join()
        print(json.dumps(said, sort_keys=True))
    """)
    assert ended.compiles == "0 hits, 24 built"


def test_a_home_that_cannot_be_written_has_its_cache_elsewhere(alike, runtime):
    home = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": None, "KILN_CACHE_DIR": None}
    assert [alike(SMALL, **home).compiles for _ in range(2)] == ["0 hits, 1 built", "1 hits, 0 built"]
    assert (runtime / "kiln/cache/objects").is_dir()


# ---- Sources and programs that nobody wrote for this


# Those of a second or less: together with the headers of CUDA it is a second each.
CORPUS = ("halves_and_bfloats", "numbers_of_eight_bits", "bits_and_bytes_of_words", "what_lanes_tell_each_other",
          "sums_by_compare_and_swap", "functions_by_pointer_and_virtual_ones", "sin_double", "tanhf_float")


def test_kernels_with_the_headers_of_cuda_have_the_same_answers(alike, program):
    include = Path(NEWEST).parents[1] / "include"
    if not (include / "cuda_fp16.h").exists():
        pytest.skip("there are no headers of CUDA here")
    from corpus_cases import CASES

    sources = [each.source for each in CASES if each.name in CORPUS]
    code = f"""
        for source in {sources!r}:
            print(json.dumps(compiled(nvrtc, source, SM, "-I{include}", "-I{include}/cccl", names=["k"])))
    """
    first = alike(code)
    made = sum(each[0] == 0 for each in first.said)
    assert made >= len(CORPUS) - 1, "NVRTC has no stdio.h"
    failed = f", {len(CORPUS) - made} failed" if made < len(CORPUS) else ""
    assert first.compiles == f"0 hits, {made} built{failed}"
    again = program(code)
    assert (again.said, again.compiles) == (first.said, f"{made} hits, 0 built{failed}")


def test_cuda_cores_own_cache_lies_on_top(run, tmp_path):
    if find_spec("cuda") is None or find_spec("cuda.core") is None:
        pytest.skip("cuda.core is not installed")
    (tmp_path / "libcuda.so.1").symlink_to(KIT / "libkiln-simulated-driver.so")
    code = f"""
import hashlib
from cuda.core import Program, ProgramOptions
from cuda.core.utils import FileStreamProgramCache
with FileStreamProgramCache({str(tmp_path / "of cuda.core")!r}) as cache:
    for i in range(3):
        source = 'extern "C" __global__ void k(float* x) {{ *x = %d; }}' % (i % 2)
        made = Program(source, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=cache)
        print(hashlib.sha256(bytes(made.code)).hexdigest())
"""
    library = {"LD_LIBRARY_PATH": str(tmp_path)}
    first, second = (run(sys.executable, "-c", code, **library) for _ in range(2))
    assert first.status == second.status == 0, first.errors
    assert (first.compiles, second.compiles) == ("0 hits, 2 built", "")
    shutil.rmtree(tmp_path / "of cuda.core")
    third = run(sys.executable, "-c", code, **library)
    assert third.compiles == "2 hits, 0 built"
    shutil.rmtree(tmp_path / "of cuda.core")
    assert first.out == second.out == third.out == run(sys.executable, "-c", code, mode=None, **library).out
