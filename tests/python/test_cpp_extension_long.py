"""Extensions of torch whose builders die, stop and hang, and one that includes all of torch, whose compile takes half a minute.
That kiln.cache stands these faults is in test_cache.py."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment
from test_cpp_extension import place, pytestmark  # noqa: F401

PROGRAM = """
import os, sys, time
import kiln.compat
kiln.compat.install("cpp_extension")
import torch
from torch.utils.cpp_extension import load_inline

before = set(os.listdir(os.path.join(os.path.dirname(torch.__file__), "include/torch")))
begun = time.monotonic()
module = load_inline(
    "ext", "at::Tensor twice(at::Tensor x) { return x * 2; }", functions=["twice"], use_pch=True, verbose=True
)
print(module.twice(torch.ones(3)).tolist(), time.monotonic() - begun < 10)
assert set(os.listdir(os.path.join(os.path.dirname(torch.__file__), "include/torch"))) == before
"""


def test_torchs_own_bindings_are_built_once_and_nothing_is_written_into_torchs_folder(tmp_path):
    for is_quick in (False, True):
        env = environment(tmp_path, TORCH_NO_COMPILER_WRAPPER="1")
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and f"[2.0, 2.0, 2.0] {is_quick}" in done.stdout, done.stdout + done.stderr


def compilers_in(folder):
    """The processes that have it as their working directory, or below."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(each / "cwd").startswith(str(folder)) and b"sleep" in (each / "cmdline").read_bytes():
                found.append(each.name)
        except OSError:
            continue
    return found


def test_of_many_processes_one_builds(place):
    processes = [place.start("print(ext().number())") for _ in range(8)]
    assert [each.communicate(timeout=120)[0].strip() for each in processes] == ["1"] * 8
    assert place.compiled() == 1


def test_after_a_builder_that_is_killed_another_builds_and_its_compilers_are_gone(place):
    place.compiler("slow", before="sleep 60")
    builder = place.start("ext()", TMPDIR=str(place.folder))
    place.wait_for_compile()
    place.compiler("slow")
    assert compilers_in(place.folder)
    builder.kill()
    builder.communicate()
    begun = time.monotonic()
    assert place.run() == "1" and time.monotonic() - begun < 30
    assert not compilers_in(place.folder)


def test_beside_a_builder_that_is_stopped_nobody_waits_longer_than_the_limit_and_five_seconds(place):
    place.compiler("slow", before="sleep 60")
    builder = place.start("ext()", KILN_EXTENSION_TIMEOUT="4")
    try:
        place.wait_for_compile()
        builder.send_signal(signal.SIGSTOP)
        place.compiler("slow")
        waited = float(
            place.run("begun = time.monotonic(); ext(); print(time.monotonic() - begun)", KILN_EXTENSION_TIMEOUT="4")
        )
        assert waited < 4 + 5 + 4  # and the build
    finally:
        builder.kill()
        builder.communicate()


def test_a_compiler_that_hangs_is_killed_at_the_limit_for_all_who_wait(place):
    place.compiler("hanging", before="sleep 60")
    code = """
        begun = time.monotonic()
        try:
            ext()
        except TimeoutError as error:
            print(time.monotonic() - begun < 10, "ext.o, ext.so not yet" in str(error))
    """
    processes = [place.start(code, KILN_EXTENSION_TIMEOUT="3", TMPDIR=str(place.folder)) for _ in range(2)]
    assert [each.communicate(timeout=60)[0].strip() for each in processes] == ["True True"] * 2
    assert not compilers_in(place.folder)
    assert (
        place.run("ext()", status=1, KILN_EXTENSION_TIMEOUT="soon") == ""
        and "KILN_EXTENSION_TIMEOUT is 'soon'" in place.err
    )


@pytest.mark.parametrize(
    "options, variables",
    [
        ("extra_cflags=['-march=native']", {}),
        ("", {"CXX": "clang++"}),
        ("", {"TORCH_NO_COMPILER_WRAPPER": None}),  # newer versions look for ccache
    ],
)
def test_with_compilers_and_flags_that_users_have_the_second_start_builds_nothing(place, options, variables):
    if shutil.which(variables.get("CXX", "c++")) is None:
        pytest.skip(f"no {variables['CXX']}")
    for outcome in ("compiled", "hit"):
        assert place.run(f"print(ext(verbose=True, {options}).number())", **variables).splitlines()[-1] == "1"
        assert f"extension ext: {outcome}" in place.err


def test_what_is_not_for_kiln_is_built_by_torch_with_one_line(place):
    code = """
        ext()
        if os.fork() == 0:
            print(ext(extra_cflags=["-DA"]).number(), ext(extra_cflags=["-DA"]).number(), flush=True)
            os._exit(0)
        os.wait()
    """
    assert place.run(code, TORCH_EXTENSIONS_DIR=str(place.folder / "theirs")) == "1 1"
    assert place.err.count("torch does: ") == 1 and place.compiled() == 2
    for machine, line in (("ROCm", "theirs.IS_HIP_EXTENSION = True"), ("SYCL", "given['with_sycl'] = True")):
        code = f"""
            import inspect
            import torch.utils.cpp_extension as theirs
            given = {{}}
            {line}
            if not set(given) <= set(inspect.signature(load).parameters) and given:
                sys.exit("this torch has no SYCL")
            try: ext(**given)
            except Exception: pass  # torch has no compiler for it here
        """
        process = place.start(code)
        said = process.communicate(timeout=120)[1]
        assert said.count(f"torch does: it is for {machine}") == 1 or "has no SYCL" in said, said
