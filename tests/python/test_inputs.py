"""Inputs of kiln.cache: what a build has read and no field of its key names."""

import json
import subprocess
import sys

import pytest
from conftest import KIT, environment

SETUP = """
import os, sys, time
from pathlib import Path
from kiln import cache

HERE = Path("inputs").absolute()

def build(folder, run, at_end=lambda: None):
    '''Copies what "top" and the files named in it have.'''
    with open("log", "a") as log:
        log.write("built\\n")
    text, files, left = "", [], ["top"]
    while left:
        files.append(HERE / left.pop())
        words = files[-1].read_text().split()
        text += " ".join(words) + ";"
        left += [word[1:] for word in words if word[0] == "@"]
    (folder / "out").write_text(text)
    at_end()
    return cache.Inputs([*files, folder / "out"], ["compiler"])

def get(build=build):
    files = cache.build_once({"of": "1"}, build, name="k")
    return files.outcome, Path(files["out"]).read_text(), files.not_stored

def settle():
    time.sleep(0.1)
"""


@pytest.fixture
def place(tmp_path):
    """Inputs "top", which names "one", and a compiler in PATH."""
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs/top").write_text("a @one")
    (tmp_path / "inputs/one").write_text("1")
    (tmp_path / "bin").mkdir()
    compiler(tmp_path, "first")
    return tmp_path


def compiler(place, text):
    program = place / "bin/compiler"
    program.write_text(f"#!/bin/sh\n# {text}\n")
    program.chmod(0o755)


@pytest.fixture
def ask(run, place):
    """Prints in a process of its own."""

    def asked(code="print(get()[:2])", **changes):
        changes = {"PATH": f"{place / 'bin'}:/usr/bin:/bin", **changes}
        return run(f"settle()\n{code}", folder=place, **changes)

    return asked


def built(place):
    return len((place / "log").read_text().splitlines())


def test_a_changed_input_is_a_miss_and_its_old_content_a_hit(ask, place):
    assert ask() == "('compiled', 'a @one;1;')" and ask() == "('hit', 'a @one;1;')"
    (place / "inputs/one").write_text("2")
    assert ask() == "('compiled', 'a @one;2;')" and ask() == "('hit', 'a @one;2;')"
    (place / "inputs/one").write_text("1")
    assert ask() == "('hit', 'a @one;1;')" and built(place) == 2


def test_an_input_that_names_another_is_followed_to_any_depth(ask, place):
    for depth in range(1, 6):
        names = ["one", *map(str, range(2, depth + 1))]
        for name, following in zip(names, [*names[1:], ""]):
            (place / "inputs" / name).write_text(f"@{following}" if following else "end")
        assert ask() == f"('compiled', 'a @one;{''.join(f'@{name};' for name in names[1:])}end;')"
        assert ask().startswith("('hit'")
    (place / "inputs/5").write_text("new end")
    assert ask().endswith("new end;')") and built(place) == 6


def test_another_compiler_in_the_path_is_a_miss(ask, place):
    ask()
    compiler(place, "second")
    assert ask().startswith("('compiled'") and ask().startswith("('hit'")
    compiler(place, "first")
    assert ask().startswith("('hit'") and built(place) == 2


def test_without_the_compiler_what_is_not_there_counts_as_it_was(ask, place):
    ask()
    (place / "inputs/one").unlink()
    assert ask("print(cache.get({'of': '1'}))") == "None"
    assert ask(PATH="/usr/bin:/bin") == "('hit', 'a @one;1;')"
    (place / "inputs/top").write_text("b")
    assert ask("print(cache.get({'of': '1'}))", PATH="/usr/bin:/bin") == "None"


def test_a_machine_that_lacks_one_compiler_takes_what_another_has_built_whatever_others_it_has(ask, place):
    get = "print(get(lambda *given: cache.Inputs(build(*given).files, ['compiler', 'second-compiler']))[:2])"
    compiler(place, "first")
    (place / "bin/second-compiler").write_bytes((place / "bin/compiler").read_bytes())
    (place / "bin/second-compiler").chmod(0o755)
    assert ask(get).startswith("('compiled'")
    compiler(place, "of another machine")
    (place / "bin/second-compiler").unlink()
    assert ask(get) == "('hit', 'a @one;1;')"


@pytest.mark.parametrize(
    "change", ["(HERE / 'one').write_text('2')", "(HERE / 'one').unlink()", "os.utime(HERE / 'top')"]
)
def test_an_input_that_changes_during_the_build_keeps_the_files_out_of_the_cache(ask, place, change):
    told = ask(f"print(get(lambda *given: build(*given, at_end=lambda: {change})))")
    assert told.startswith("('compiled', 'a @one;1;', 'the build read ") and "inputs/" in told
    (place / "inputs/one").write_text("3")
    assert ask() == "('compiled', 'a @one;3;')" and ask() == "('hit', 'a @one;3;')"


def test_processes_that_wait_get_the_files_behind_the_inputs(place):
    code = (
        SETUP
        + "settle(); out = get(lambda *given: build(*given, at_end=lambda: time.sleep(0.5)))\nassert out[1] == 'a @one;1;', out"
    )
    env = environment(place, PATH=f"{place / 'bin'}:/usr/bin:/bin")
    code = "import sys; sys.modules['torch'] = None\n" + code
    processes = [subprocess.Popen([sys.executable, "-c", code], env=env, cwd=place) for _ in range(8)]
    assert [each.wait(60) for each in processes] == [0] * 8 and built(place) == 1


def test_a_forked_child_finds_files_by_their_inputs(ask):
    ask()
    print_in_child = (
        "get()\npid = os.fork()\nif not pid:\n    print(get()[:2], flush=True); os._exit(0)\nos.waitpid(pid, 0)"
    )
    assert ask(print_in_child) == "('hit', 'a @one;1;')"


def test_without_a_cache_and_in_one_that_is_read_only_files_are_given_all_the_same(ask, place):
    assert ask("print(get()[:2]); print(get()[:2])", KILN_CACHE_DIR="/proc/nowhere").splitlines() == [
        "('compiled', 'a @one;1;')",
        "('hit', 'a @one;1;')",
    ]


def test_a_pack_has_the_inputs_too_and_a_damaged_list_is_a_miss(ask, place):
    kiln, other = str(KIT.parent / "bin/kiln"), place / "other"
    ask()
    subprocess.run([kiln, "pack", "-o", place / "job.kpack"], env=environment(place), check=True, capture_output=True)
    assert (
        ask(KILN_CACHE_DIR=str(other), KILN_SEED=str(place / "job.kpack"), KILN_NO_JIT="1") == "('seed', 'a @one;1;')"
    )
    [path] = [
        each for each in (place / "cache/objects").rglob("*") if each.is_file() and b"k (inputs)" in each.read_bytes()
    ]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40])
    assert ask() == "('compiled', 'a @one;1;')" and ask().startswith("('hit'")


def test_a_miss_of_the_files_behind_a_list_is_one_build_for_those_who_wait(ask, place):
    ask()
    keys = subprocess.run(
        [str(KIT.parent / "bin/kiln"), "ls", "--json"],
        env=environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    [key] = [each["key"] for each in json.loads(keys.stdout)["entries"] if each["name"] == "k"]
    subprocess.run(
        [str(KIT.parent / "bin/kiln"), "clear", key], env=environment(place), check=True, capture_output=True
    )
    assert ask() == "('compiled', 'a @one;1;')" and ask().startswith("('hit'") and built(place) == 2


def test_what_is_wrong_is_named(ask):
    told = ask("""
for inputs in (["a.h"], cache.Inputs([3]), cache.Inputs(["a\\0b"]), cache.Inputs([], ["a\\0b"])):
    try:
        cache.build_once({"of": "2"}, lambda folder, run: inputs)
    except (cache.errors.InvalidArgument, TypeError) as error:
        print(error)
try:
    cache.put({"of": "3"}, {".kiln-inputs": b""})
except cache.errors.InvalidArgument as error:
    print(error)
""")
    assert "build returned ['a.h'], and not None or kiln.cache.Inputs" in told
    assert told.count("NUL") == 2 and "not int" in told and "no file may have the name .kiln-inputs" in told
