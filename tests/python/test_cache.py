"""kiln.cache: files of other programs, built once on a machine and given out unchanged."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import KIT, ROOT, blocks, environment

SETUP = """
import os, sys, threading, time
from pathlib import Path
import kiln
from kiln import cache

def build(folder, run):
    with open("log", "a") as log:
        log.write("built\\n")
    run(["sh", "-c", "echo $WORD > a; mkdir d; printf x > d/b; sleep 0.3"], {"PATH": os.environ["PATH"], "WORD": "said"})

def texts(files):
    return {name: Path(path).read_text() for name, path in files.items()}
"""
EXPECTED = {"a": "said\n", "d/b": "x"}
needs_remote = pytest.mark.skipif(
    not (KIT.parent / "bin/kiln-remote").exists(), reason="this build has no kiln-remote"
)


def start(folder, code, how={}, **changes):
    """A process of its own in `folder`, which has the cache, too."""
    code = "import sys; sys.modules['torch'] = None\n" + SETUP + code
    return subprocess.Popen([sys.executable, "-c", code], env=environment(folder, **changes), cwd=folder, **how)


def built(folder):
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_build_is_found_by_another_process(run, tmp_path):
    code = "files = cache.build_once({'of': '1'}, build, name='k'); print(files.outcome, texts(files), files.key)"
    first, second = (run(code, folder=tmp_path) for _ in range(2))
    assert first.startswith(f"compiled {EXPECTED}")
    assert second == first.replace("compiled", "hit") and built(tmp_path) == 1


def test_of_processes_and_their_threads_one_builds(tmp_path):
    code = f"""
threads = [threading.Thread(target=lambda: out.append(texts(cache.build_once({{"of": "1"}}, build, timeout=60))))
           for _ in range(4)]
out = []
[each.start() for each in threads]; [each.join() for each in threads]
assert out == [{EXPECTED}] * 4, out
"""
    others = [start(tmp_path, code) for _ in range(4)]
    assert [each.wait(60) for each in others] == [0] * 4
    assert built(tmp_path) == 1


def test_a_stopped_builder_is_waited_for_no_longer_than_the_limit_and_five_seconds(tmp_path):
    code = (
        "cache.build_once({'of': '1'}, lambda folder, run: (Path('log').write_text('b'), time.sleep(60)), timeout=1)"
    )
    stopped = start(tmp_path, code)
    try:
        while not built(tmp_path):
            time.sleep(0.01)
        stopped.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        other = start(tmp_path, f"assert texts(cache.build_once({{'of': '1'}}, build, timeout=1)) == {EXPECTED}")
        assert other.wait(60) == 0 and time.monotonic() - begun < 10
    finally:
        stopped.kill()
        stopped.wait()


@pytest.mark.parametrize("ends", ["os.kill(os.getpid(), 9)", "raise ValueError('no')", "sys.exit('no')"])
def test_after_a_builder_that_dies_or_raises_another_builds(tmp_path, ends):
    first = start(
        tmp_path,
        "def die(folder, run):\n    Path('log').write_text('b\\n')\n    time.sleep(0.5)\n"
        f"    {ends}\ncache.build_once({{'of': '1'}}, die, timeout=60)",
        PYTHONFAULTHANDLER=None,
    )
    while not built(tmp_path):
        time.sleep(0.01)
    other = start(tmp_path, f"assert texts(cache.build_once({{'of': '1'}}, build, timeout=60)) == {EXPECTED}")
    assert other.wait(30) == 0 and first.wait(30) != 0 and built(tmp_path) == 2


def test_an_error_of_the_build_is_raised_with_its_output_and_answers_those_who_wait(run, tmp_path):
    code = """
def fails(folder, run):
    with open("log", "a") as log: log.write("built\\n")
    run(["sh", "-c", "sleep 0.5; echo no such register; exit 3"])
out = []
def ask():
    try: cache.build_once({"of": "1"}, fails, timeout=60)
    except kiln.CompileFailed as error: out.append((str(error), error.log))
threads = [threading.Thread(target=ask) for _ in range(4)]
[each.start() for each in threads]; [each.join() for each in threads]
print(len(out), all("sh ended with status 3" in text for text, _ in out), out[0][1].strip())
"""
    assert run(code, folder=tmp_path) == "4 True no such register"
    assert built(tmp_path) == 1


def test_what_a_build_starts_is_killed_at_its_limit_and_by_ctrl_c(run, tmp_path):
    code = """
import signal
try: cache.build_once({"of": "1"}, lambda folder, run: run(["sh", "-c", "setsid sleep 300 & echo $!; sleep 300"]), timeout=0.5)
except kiln.Timeout as error: print(str(error).split()[-1])
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
signal.setitimer(signal.ITIMER_REAL, 0.5)
begun = time.monotonic()
try: cache.build_once({"of": "1"}, lambda folder, run: run(["sh", "-c", "echo $$ > pid; cp pid " + os.getcwd() + "; sleep 300"]))
except KeyboardInterrupt: print(time.monotonic() - begun < 5, Path("pid").read_text())
"""
    late, is_prompt, stopped = run(code, folder=tmp_path).split()
    assert is_prompt == "True"
    for pid in (late, stopped):
        deadline = time.monotonic() + 5
        while os.path.exists(f"/proc/{pid}/cmdline") and open(f"/proc/{pid}/cmdline").read():
            assert time.monotonic() < deadline, pid
            time.sleep(0.01)


def test_a_turn_that_comes_after_ctrl_c_is_given_up(run, tmp_path):
    code = """
import signal
from kiln import _files
real = _files._function
def slow(name):
    function = real(name)
    if name != "kiln_file_cache_begin": return function
    return lambda *given: (time.sleep(1), function(*given[:3], None, *given[4:]))[1]  # does not see the cancellation
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
_files._function = slow
signal.setitimer(signal.ITIMER_REAL, 0.3)
try: cache.build_once({"of": "1"}, build)
except KeyboardInterrupt: print("interrupted")
_files._function = real
time.sleep(1.5)
begun = time.monotonic()
print(cache.build_once({"of": "1"}, build).outcome, time.monotonic() - begun < 5)
"""
    assert run(code, folder=tmp_path) == "interrupted\ncompiled True"


def test_without_the_library_one_error_says_so(tmp_path):
    process = start(
        tmp_path,
        "try: cache.get({'of': '1'})\nexcept kiln.Unavailable as error: print(error, file=sys.stderr)",
        {"stderr": subprocess.PIPE, "text": True},
        KILN_FFI_LIBRARY="/nowhere/libkiln_ffi.so",
    )
    said = process.communicate(timeout=60)[1]
    assert process.wait() == 0 and said.startswith("there is no libkiln.so.") and said.count("\n") == 1


def test_a_forked_child_finds_and_puts_and_does_not_build(run):
    code = """
cache.put({"of": "1"}, {"a": "1"})
if os.fork() == 0:
    found = texts(cache.get({"of": "1"})), texts(cache.put({"of": "2"}, {"b": b"2"}))
    try: cache.build_once({"of": "3"}, build)
    except kiln.ForkError: print(*found, flush=True)
    os._exit(0)
os.wait()
print(texts(cache.get({"of": "2"})))
"""
    assert run(code) == "{'a': '1'} {'b': '2'}\n{'b': '2'}"


@needs_remote
def test_files_go_to_remotes_without_their_source_and_come_from_there(run, tmp_path):
    code = """
    put = lambda n: cache.put({"of": n}, {"a": n, "a.src": "secret"}, sources=["a.src"])
    def build(folder, run):
        (folder / "a").write_text("3")
    print(texts(put("1"))["a"], texts(cache.build_once({"of": "3"}, build))["a"])
    """
    both = """
    found = {each: cache.get({"of": each}) for each in "13"}
    print({each: (files.outcome, texts(files)) for each, files in found.items()})
    """
    (tmp_path / "remote").mkdir()
    remote = {"KILN_REMOTE": f"file://{tmp_path / 'remote'};unsigned=1", "KILN_REMOTE_WAIT": "20s"}
    assert run(textwrap.dedent(code), **remote, KILN_REMOTE_MODE="rw") == "1 3"
    said = run(textwrap.dedent(both), **remote, KILN_CACHE_DIR=str(tmp_path / "other"))
    assert said == "{'1': ('remote', {'a': '1'}), '3': ('remote', {'a': '3'})}"
    assert not any(b"secret" in each.read_bytes() for each in (tmp_path / "remote").rglob("*") if each.is_file())


@needs_remote
def test_of_processes_with_a_remote_that_has_nothing_one_builds(tmp_path):
    (tmp_path / "remote").mkdir()
    remote = {"KILN_REMOTE": f"file://{tmp_path / 'remote'};unsigned=1", "KILN_REMOTE_MODE": "rw"}
    code = f"assert texts(cache.build_once({{'of': '1'}}, build, timeout=60)) == {EXPECTED}"
    others = [start(tmp_path, code, **remote) for _ in range(6)]
    assert [each.wait(60) for each in others] == [0] * 6
    assert built(tmp_path) == 1


def test_a_changed_file_is_given_once_more_as_it_was(run):
    code = """
first = cache.put({"of": "1"}, {"a": "1", "tool": "#!"}, programs=["tool"])
print(oct(os.stat(first["tool"]).st_mode), oct(os.stat(first["a"]).st_mode))
os.chmod(first["a"], 0o600)
Path(first["a"]).write_text("2")
again = cache.get({"of": "1"})
print(texts(again)["a"], again.folder != first.folder)
"""
    assert run(code) == "0o100500 0o100400\n1 True"


def test_without_a_cache_each_process_builds(run, tmp_path):
    code = "files = cache.build_once({'of': '1'}, build); print(texts(files), bool(files.not_stored))"
    for _ in range(2):
        assert run(code, folder=tmp_path, KILN_CACHE_DIR="/proc/kiln") == f"{EXPECTED} True"
    assert built(tmp_path) == 2


def test_what_is_wrong_is_named(run):
    code = """
for wrong in (
    lambda: cache.get({}), lambda: cache.get("of"), lambda: cache.get({"of": 1}), lambda: cache.get({"o\\0f": ""}),
    lambda: cache.put({"of": "1"}, {}), lambda: cache.put({"of": "1"}, {"../a": ""}),
    lambda: cache.put({"of": "1"}, {"a": ""}, programs=["b"]), lambda: cache.put({"of": "1"}, {"a": ""}, target="x" * 17),
    lambda: cache.build_once({"of": "1"}, build, timeout="1m"), lambda: cache.build_once({"of": "1"}, build, timeout=-1),
    lambda: cache.build_once({"of": "1"}, lambda folder, run: run("make")),
    lambda: cache.build_once({"of": "1"}, lambda folder, run: None),
):
    try: print("?", wrong())
    except kiln.InvalidArgument as error: print(str(error))
"""
    said = run(code).splitlines()
    expected = (
        *("no fields", "'of', and not a mapping", "the field 'of' is a int", "has a NUL"),
        *("has no file", "'../a' is no name", "'b', which is none", "no target of 1 to 16"),
        *("'1m', and not a number", "must be above 0", "'make', and not a list", "has no file"),
    )
    assert len(said) == len(expected)
    for line, part in zip(said, expected, strict=True):
        assert part in line


def test_the_lines_of_the_page_are_as_they_are_shown(run, tmp_path):
    (lines,) = blocks((ROOT / "docs/files.md").read_text(), "python")
    for outcome in ("compiled", "hit"):
        assert run(f"{lines}\nprint(answer, built.outcome)", folder=tmp_path) == f"42 {outcome}"
