"""docs/stories.md: each of its commands is run, and prints what the page shows; its Python
is that of the programs in stories/. KILN_UPDATE_GOLDEN=1 writes the page's output anew."""

import os
import re
import subprocess
import sys

import pytest
from conftest import HERE, KIT, ROOT, blocks, commands, environment, needs_torch

PAGE = ROOT / "docs/stories.md"
CASES = {
    section.partition("\n")[0]: section
    for section in re.split(r"(?m)^## ", PAGE.read_text())[1:]
}
CUDNN = KIT / "libkiln-simulated-cudnn.so"
JAX = KIT / "libkiln_jax.so"
DIFFERS = {  # from one run to the next, and between NVRTCs
    r"\b\d+(\.\d+)? m?s\b": "N s",
    r"\bprocess \d+": "process N",
    r"\bCUDA \d+\.\d+": "CUDA N",
    r"(?m)^\[[#.]+\] .*\n": "",  # progress, where a build takes long
}


def normalised(output):
    for pattern, name in DIFFERS.items():
        output = re.sub(pattern, name, output)
    return output


@pytest.fixture
def shell(nvrtc, tmp_path):
    """Runs a command in the folder of the programs, with a cache of the test's own and a
    cuDNN of the version that the stories are about; returns what it printed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python3").chmod(0o700)
    changes = {
        "PATH": f"{programs}:{KIT.parent / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "KILN_PYTHON_STRICT": "1",
        "KILN_CUDNN": str(CUDNN) if CUDNN.exists() else None,
        "KILN_SIMULATED_CUDNN_VERSION": "90100",
        "FAKE_NVRTC": str(KIT / "libkiln-fake-nvrtc.so"),
    }

    def run(command):
        done = subprocess.run(
            ["sh", "-c", command], cwd=HERE / "stories", env=environment(tmp_path, **changes),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=240, check=False,
        )
        assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}"
        return done.stdout.replace(str(KIT), "build/dev/lib")

    return run


@needs_torch
@pytest.mark.parametrize("case", CASES)
def test_each_command_of_a_story_prints_what_the_page_shows(case, shell):
    for word, library in (("wide_heads.py", CUDNN), ("_in_jax.py", JAX)):
        if word in CASES[case] and not library.exists():
            pytest.skip(f"this build has no {library.name}")
    for block in blocks(CASES[case], "console"):
        for command, shown in commands(block):
            said = shell(command)
            for seconds in re.findall(r"done ([\d.]+) s after the death", said):
                assert float(seconds) < 15, said  # without heartbeats a lock lasts 10 s
            if os.environ.get("KILN_UPDATE_GOLDEN") and normalised(said) != normalised(shown):
                new = PAGE.read_text().replace(f"$ {command}{shown}", f"$ {command}{said}")
                PAGE.write_text(new)
                continue
            assert normalised(said) == normalised(shown), command


@pytest.mark.parametrize("case", CASES)
def test_the_python_of_a_story_is_that_of_its_program(case):
    names = re.findall(r"^\$ .*python3 (\w+\.py)$", CASES[case], re.M)
    for name, block in zip(names, blocks(CASES[case], "python"), strict=True):
        program = iter((HERE / "stories" / name).read_text().splitlines())
        for line in block.splitlines():
            assert line in program, f"{name} has not, or not there: {line}"
