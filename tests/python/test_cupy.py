"""CuPy beneath `kiln run`: the compiles of its RawModule, with its own cache and without, on a machine with no GPU."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from beneath import KILN, NEWEST, PROGRAMS, run, runtime  # noqa: F401
from conftest import ROOT

PACKAGES = ROOT / ".deps/frameworks"
if not (PACKAGES / "cupy").is_dir():
    pytest.skip(
        "there is no CuPy here: run ./tools/test.sh, which puts it into .deps/frameworks", allow_module_level=True
    )
INCLUDE = Path(NEWEST).parents[1] / "include"
if not (INCLUDE / "cuda_fp16.h").exists():
    pytest.skip("there are no CUDA headers beside NVRTC", allow_module_level=True)
WITHOUT_ITS_CACHE = {"CUPY_CACHE_IN_MEMORY": "1"}


@pytest.fixture
def cupy(run, tmp_path):
    """Runs train.py, which compiles five kernels with CuPy's headers and mine.h; CuPy itself compiles one more."""
    (tmp_path / "mine.h").write_text("#define MINE 1\n")
    (tmp_path / "train.py").write_text(
        f"import os, sys\nsys.path[:0] = [{str(PROGRAMS)!r}]\nimport cupy_kernels\n"
        f"cupy_kernels.main({str(INCLUDE)!r}, {str(tmp_path)!r},"
        " cache_in_memory=bool(os.environ.get('CUPY_CACHE_IN_MEMORY')))\n"
    )
    settings = {
        "PYTHONPATH": f"{PACKAGES}:{os.environ.get('PYTHONPATH', '')}",
        "LD_LIBRARY_PATH": f"{Path(NEWEST).parent}:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }

    def cupy(*command, **changes):
        ended = run(*(command or (sys.executable, "train.py")), **settings, **changes)
        assert ended.status == 0, ended.errors
        return ended

    return cupy


def test_a_second_process_compiles_nothing_whatever_its_own_cache_has(cupy, tmp_path):
    itself = cupy(mode=None)
    shutil.rmtree(tmp_path / ".cupy")
    for compiles in ("0 hits, 6 built", "6 hits, 0 built"):
        ended = cupy()
        assert (ended.out, ended.compiles) == (itself.out, compiles)
        shutil.rmtree(tmp_path / ".cupy")
    ended = cupy(**WITHOUT_ITS_CACHE)
    assert (ended.out, ended.compiles) == (itself.out, "6 hits, 0 built")


def test_a_changed_header_is_compiled(cupy, tmp_path):
    """CuPy's own cache has the header in no key: it returns the kernels of the old one."""
    old = cupy(**WITHOUT_ITS_CACHE)
    (tmp_path / "mine.h").write_text("#define MINE 2\n")
    new = cupy(**WITHOUT_ITS_CACHE)
    assert new.compiles == "1 hits, 5 built"
    assert new.out == cupy(mode=None, **WITHOUT_ITS_CACHE).out != old.out


def test_the_session_of_readme_is_as_it_is_shown(cupy, tmp_path):
    session = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    commands = [line[2:].partition(" #")[0] for line in session.splitlines() if line.startswith("$ ")]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kiln").symlink_to(KILN)
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    assert commands[0].strip() == "export " + "=".join(*WITHOUT_ITS_CACHE.items())
    said = [cupy("sh", "-c", each, mode=None, PATH=path, **WITHOUT_ITS_CACHE).out for each in commands[1:]]
    assert said[0] == said[1]
    shown = [line.split() for line in session.partition("$ kiln stats")[2].splitlines()[1:] if line]
    assert [line.split() for line in said[2].splitlines() if line.startswith(("COUNTER", "nvrtc"))] == shown
