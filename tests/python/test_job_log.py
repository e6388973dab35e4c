"""What a job tells while it runs: lines of the log, the file of KILN_EVENTS, `kiln events` and `kiln ps`."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import KIT, environment

KILN = KIT.parent / "bin/kiln"
SETUP = """
import sys; sys.modules['torch'] = None
import ctypes, os, threading, time
from pathlib import Path
import kiln
from kiln import cache

def kernel(number, *options):
    kiln.Kernel('extern "C" __global__ void k(float* x) { *x = %d; }' % number, options=options, device=0).prepare()
"""


def start(folder, code, **changes):
    return subprocess.Popen(
        [sys.executable, "-c", SETUP + textwrap.dedent(code)],
        env=environment(folder, **{"KILN_LOG": "info", **changes}),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process, status=0):
    """The lines of Kiln on stderr of a process that ends."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, f"{process.returncode}\n{out}\n{err}"
    return [line.removeprefix("kiln: ") for line in err.splitlines() if line.startswith("kiln: ")]


def kiln(folder, *arguments, status=0, text=None):
    command = [str(KILN), *map(str, arguments)]
    env = environment(folder)
    done = subprocess.run(command, env=env, cwd=folder, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def events(*files):
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.usefixtures("nvrtc")
def test_a_build_is_one_line_that_says_why_it_was_needed(tmp_path):
    first = said(start(tmp_path, "kernel(1, '--fmad=true')"))
    assert first[0].startswith("info: built kernel.cu: k for device 0 (9.0) in "), first
    assert first[0].endswith("no similar entry"), first
    assert first[1].startswith("info: kernels: 1 built in ") and len(first) == 2, first
    (line, _) = said(start(tmp_path, "kernel(1, '--fmad=false')"))
    assert "the nearest entry, " in line and "differs in option: --fmad=false, in the entry --fmad=true" in line
    assert said(start(tmp_path, "kernel(1, '--fmad=false')")) == ["info: kernels: 1 from disk"]


@pytest.mark.usefixtures("nvrtc")
def test_a_header_in_memory_differs_in_a_line(tmp_path):
    code = """kiln.Kernel('#include "x.h"\\nextern "C" __global__ void k() {}', headers={"x.h": "//\\n#define N %d\\n"}, device=0).prepare()"""
    said(start(tmp_path, code % 1))
    (line, _) = said(start(tmp_path, code % 2))
    assert "differs in memory_header/x.h: sha256 " in line
    assert ", line 2: #define N 2, in the entry sha256 " in line and line.endswith(", line 2: #define N 1")


@pytest.mark.usefixtures("nvrtc")
def test_without_the_setting_a_job_is_quiet(tmp_path):
    assert said(start(tmp_path, "kernel(1)", KILN_LOG=None)) == []


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("place", ["read-only", "off"])
def test_a_job_tells_what_it_builds_where_nothing_can_be_stored(tmp_path, place):
    said(start(tmp_path, "kernel(1)"))
    cache = tmp_path / "cache"
    if place == "off":
        cache = tmp_path / "file"
        cache.write_text("no folder")
    changes = {"KILN_CACHE_DIR": str(cache), "KILN_EVENTS": str(tmp_path / "e")}
    if place == "read-only":
        subprocess.run(["mount", "--version"], check=True, capture_output=True)
        command = ["unshare", "-m", "sh", "-c", f'mount --bind {cache} {cache} && mount -o remount,ro,bind {cache} && exec "$@"', "-"]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no mount namespace here")
    else:
        command = []
    job = subprocess.Popen(
        [*command, sys.executable, "-c", SETUP + "kernel(2)"],
        env=environment(tmp_path, KILN_LOG="info", **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = said(job)
    assert any("built kernel.cu: k for device 0 (9.0) in" in line and "it is not stored" in line for line in lines), lines
    (event,) = events(tmp_path / "e")
    assert event["outcome"] == "compiled" and event["stored"] is False and event["error"]["message"]


def test_a_wait_is_a_line_and_ps_shows_who_builds_and_who_waits(tmp_path):
    build = "cache.build_once({'of': '1'}, lambda folder, run: (Path('begun').touch(), %s, None)[-1], name='slow kernel', timeout=60)"
    rest = "[time.sleep(0.05) for _ in range(1000) if not Path('end').exists()], (folder / 'a').write_text('a')"
    builder = start(tmp_path, build % rest.replace("folder /", "Path(folder) /"))
    until((tmp_path / "begun").exists)
    waiter = start(tmp_path, build % "None")
    now = lambda: json.loads(kiln(tmp_path, "ps", "--json"))["builds"]  # noqa: E731
    until(lambda: now() and now()[0]["waiting"])
    (shown,) = now()
    assert (shown["label"], shown["pid"], shown["waiting"]) == ("slow kernel", builder.pid, [waiter.pid])
    assert shown["phase"] == "compiling" and shown["seconds"] > 0 and not shown["stopped"]
    os.kill(builder.pid, signal.SIGSTOP)
    until(lambda: now()[0]["stopped"])
    assert "compiling, but stopped" in kiln(tmp_path, "ps")
    os.kill(builder.pid, signal.SIGCONT)
    (tmp_path / "end").touch()
    assert any(line.startswith("info: built slow kernel in ") for line in said(builder))
    lines = said(waiter)
    assert any("for slow kernel: another process or thread built it" in line for line in lines), lines
    assert any(line.startswith("info: files: 1 waited for, ") for line in lines), lines
    assert now() == [] and kiln(tmp_path, "ps") == ""


@pytest.mark.usefixtures("nvrtc")
def test_events_of_several_processes_are_summed_up(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    for rank in "01":
        said(start(tmp_path, "kernel(1); kernel(2)", KILN_EVENTS=str(folder), RANK=rank, KILN_LOG=None))
    files = sorted(folder.iterdir())
    assert [file.name.split(".")[-1] for file in files] == ["jsonl"] * 2
    host = socket.gethostname()
    for event in events(*files):
        assert event["host"] == host and event["name"] == "kernel.cu: k" and event["key"]
        assert event["arch"] == "9.0" and event["device"] == 0
    assert sorted(event["outcome"] for event in events(*files)) == ["compiled", "compiled", "hit", "hit"]
    assert {event["rank"] for event in events(*files)} == {0, 1}
    (folder / "cut.jsonl").write_text('{"event":"done","na')
    document = json.loads(kiln(tmp_path, "events", folder, "--json"))
    assert (document["events"], document["unreadable"], document["processes"]) == (4, 1, 2)
    assert document["tiers"] == {"disk": 2} and document["compiled"] == 2 and document["failed"] == 0
    (summed,) = document["kernels"]
    assert (summed["name"], summed["compiled"], summed["found"], summed["hosts"]) == ("kernel.cu: k", 2, 2, [host])
    assert summed["build_ms"] == document["build_ms"] > 0 and summed["first"] <= summed["last"]
    assert [each["host"] for each in document["hosts"]] == [host]
    table = kiln(tmp_path, "events", *files)
    assert "4 events of 2 processes on 1 host" in table and "2 found (2 from disk), 2 built in" in table
    assert table.splitlines()[-1].split()[:3] == ["kernel.cu:", "k", "9.0"] and f" {host} " in table
    assert kiln(tmp_path, "events", "-", text=files[0].read_text()).startswith("2 events of 1 process")
    assert kiln(tmp_path, "events", "-", text="") == "no events\n"
    for wrong in ("none", tmp_path / "cache"):
        kiln(tmp_path, "events", wrong, status=2)
    kiln(tmp_path, "events", status=2)


@pytest.mark.usefixtures("nvrtc")
def test_a_failure_is_told_by_its_first_line(tmp_path):
    code = "try: kiln.Kernel('__global__ void k() { wrong; }', device=0).prepare()\nexcept kiln.CompileFailed: pass"
    lines = said(start(tmp_path, code, KILN_EVENTS="e"))
    assert lines[0].startswith("info: failed to get kernel.cu: k for device 0 (9.0) in ") and "1 failed" in lines[-1], lines
    (event,) = events(tmp_path / "e")
    assert event["outcome"] == "failed" and event["error"]["code"] == "compile_failed"
    assert "\n" not in event["error"]["message"]
    (event,) = events_of_no_jit(tmp_path)
    assert event["error"]["code"] == "unavailable" and "KILN_NO_JIT" in event["error"]["message"]


@pytest.mark.usefixtures("nvrtc")
def test_threads_that_wait_for_a_build_of_their_process_are_told(tmp_path):
    code = """
    source = '#include <cub/block/block_radix_sort.cuh>\\n' + 'extern "C" __global__ void k() {}'
    get = lambda: kiln.Kernel(source, device=0).prepare()
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    """
    lines = said(start(tmp_path, code, KILN_EVENTS="e"))
    outcomes = sorted(event["outcome"] for event in events(tmp_path / "e"))
    assert outcomes == ["compiled"] + ["waited"] * (len(outcomes) - 1) and len(outcomes) > 1, lines
    assert {event["name"] for event in events(tmp_path / "e")} == {"kernel.cu: k"}
    assert any("for kernel.cu: k for device 0 (9.0): another process or thread built it" in line for line in lines), lines


@pytest.mark.usefixtures("nvrtc")
def test_each_build_of_a_link_is_told(tmp_path):
    code = """
    source = 'extern "C" __global__ void k(float* x) { *x = %d; }'
    for number in 1, 2:
        kiln.Kernel(source % number, options=["-rdc=true"], device=0).prepare()
    """
    lines = said(start(tmp_path, code, KILN_EVENTS="e"))
    built = [line for line in lines if line.startswith("info: built ")]
    assert len(built) == 4 and "differs in source: " in built[2] and "differs in link/object: " in built[3], lines
    assert lines[-1].startswith("info: kernels: 4 built in "), lines
    assert all(event["build_ms"] <= event["ms"] for event in events(tmp_path / "e"))


def events_of_no_jit(folder):
    code = "try: kernel(3)\nexcept kiln.Unavailable: pass"
    said(start(folder, code, KILN_EVENTS="no_jit", KILN_NO_JIT="1"))
    return events(folder / "no_jit")


@pytest.mark.usefixtures("nvrtc")
def test_a_bad_place_for_events_is_a_warning_and_the_job_goes_on(tmp_path):
    lines = said(start(tmp_path, "kernel(1)", KILN_EVENTS="none/e", KILN_LOG=None))
    assert lines == ["warning: no events are written: open none/e: No such file or directory"], lines


@pytest.mark.usefixtures("nvrtc")
def test_at_the_end_of_the_process_the_hosts_own_writer_is_not_called(tmp_path):
    code = f"""
    library = ctypes.CDLL({str(KIT / "libkiln.so")!r}, os.RTLD_GLOBAL)
    lines = []
    writer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(lambda _, level, line: lines.append(line))
    assert library.kiln_log_to(writer, None) == 0
    kernel(1)
    assert any(b"built" in line for line in lines), lines
    """
    assert said(start(tmp_path, code)) == []


def test_a_forked_child_tells_no_summary_of_its_parent(tmp_path):
    code = """
    cache.build_once({'of': '1'}, lambda folder, run: [(Path(folder) / 'a').write_text('a')] and None)
    if os.fork() == 0:
        cache.get({'of': '1'})
        sys.exit(0)
    os.wait()
    """
    lines = said(start(tmp_path, code, KILN_EVENTS="e"))
    assert len([line for line in lines if line.startswith("info: files: ")]) == 1, lines
    first, second = events(tmp_path / "e")
    assert (first["outcome"], second["outcome"]) == ("compiled", "hit") and first["pid"] != second["pid"]
