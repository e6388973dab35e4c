"""What the tests of the package share: processes of their own, with a cache of their own.

The environment says where the build is: KILN_FFI_LIBRARY, KILN_TEST_KIT (the folder of the libraries
of the tests) and KILN_WORKER; see tests/python/CMakeLists.txt.
"""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
HERE = Path(__file__).resolve().parent
KIT = Path(os.environ.get("KILN_TEST_KIT", ROOT / "build/dev/lib")).resolve()
# What a test may not inherit: settings of the user who runs it.
KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "TMPDIR")


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"


def environment(folder, **changes):
    """Of a child process: nothing of Kiln but the build, and home and cache in `folder`."""
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env |= {
        "PYTHONPATH": f"{ROOT / 'python'}:{HERE}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
        "HOME": str(folder),
        "KILN_CACHE_DIR": str(folder / "cache"),
        "KILN_FFI_LIBRARY": os.environ.get("KILN_FFI_LIBRARY", str(KIT / "libkiln_ffi.so")),
        "KILN_WORKER": os.environ.get("KILN_WORKER", str(KIT.parent / "bin/kiln-worker")),
        "KILN_TEST_KIT": str(KIT),
        "KILN_DRIVER": str(KIT / "libkiln-simulated-driver.so"),
        "KILN_SIMULATED_KERNELS": "record",  # until kiln.testing says otherwise
    }
    if "KILN_NVRTC" in os.environ:
        env["KILN_NVRTC"] = os.environ["KILN_NVRTC"]
    env |= changes
    return {name: value for name, value in env.items() if value is not None}


@pytest.fixture
def python(tmp_path):
    """Runs code in a process of its own, which must succeed; returns what it printed.

    Without torch, whose import takes longer than most tests, unless `torch` is true.
    """

    def run(code, *, timeout=60, torch=False, folder=None, **changes):
        done = subprocess.run(
            [sys.executable, "-c", ("" if torch else WITHOUT_TORCH) + textwrap.dedent(code)],
            env=environment(tmp_path, **changes),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    return run


@pytest.fixture
def run(python, request):
    """As python(), after the module's SETUP."""
    return lambda code, **options: python(request.module.SETUP + code, **options)


def blocks(text, language):
    """What the code blocks of a page hold."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def doctor():
    """What `kiln doctor` says; {} where there is none."""
    import json

    program = KIT.parent / "bin/kiln"
    done = subprocess.run([str(program), "doctor", "--json"], stdout=subprocess.PIPE, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {}


def has_nvrtc():
    """Whether kiln finds an NVRTC."""
    return bool(doctor().get("toolchains"))


def real_cudnn():
    """The path of the cuDNN that is used; None where there is none."""
    found = [each for each in doctor().get("checks", []) if each["name"] == "cudnn"]
    path = Path(found[0]["detail"].partition(" (")[0]) if found else None
    return path if path and path.exists() else None


@pytest.fixture(scope="session")
def nvrtc():
    if not has_nvrtc():
        pytest.skip("no NVRTC here")


def has_torch():
    """Whether torch is there; with KILN_TEST_TORCH, which must be the folder that has it."""
    import importlib.util

    found = importlib.util.find_spec("torch")
    folder = os.environ.get("KILN_TEST_TORCH")
    assert folder is None or Path(found.origin).is_relative_to(folder), found
    return found is not None


needs_torch = pytest.mark.skipif(not has_torch(), reason="torch is not installed")


PARTS_OF_FIGURES = ("s", "ms", "ago", "now")


def as_shown(line):
    """Its words but for figures, which are this machine's."""
    return [word for word in line.split() if not any(each.isdigit() for each in word) and word not in PARTS_OF_FIGURES]


def commands(block):
    """Each command of a session, with the output that is shown below it."""
    for part in re.split(r"(?m)^\$ ", block)[1:]:
        command = re.match(r"(.*\\\n)*.*\n", part)[0]  # with lines that go on
        yield command, part[len(command) :]


def with_programs(folder, env):
    """The environment in which `kiln` is this build's, and `python` this Python."""
    programs = folder / "bin-of-session"
    programs.mkdir()
    (programs / "kiln").symlink_to(KIT.parent / "bin/kiln")
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    return env | {"PATH": f"{programs}:{env['PATH']}"}


def check_session(page, folder, env):
    """Runs the commands of a page's session in `folder`, each of which must print the lines below it; returns how
    many there are."""
    (session,) = blocks(page, "text")
    env = with_programs(folder, env)
    shown = list(commands(session))
    for command, expected in shown:
        done = subprocess.run(["sh", "-c", command], env=env, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said = [as_shown(line) for line in (done.stderr + done.stdout).splitlines()]
        assert [line for line in expected.splitlines() if as_shown(line) not in said] == [], done.stderr + done.stdout
    return len(shown)
