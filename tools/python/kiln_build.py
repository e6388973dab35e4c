"""The build backend of pyproject.toml: scikit-build-core, and headers of NVIDIA and XLA as wheels.

The headers of CUDA, NVRTC, cuDNN and cuDNN's frontend come from an installed toolkit or
from .deps. Where neither has them, they come from the wheels of tools/wheels.txt: those of
CUDA and NVRTC are required to build; the others, whose wheels would bring cuBLAS along,
are fetched here. Without them the wheel has no plan worker, and the log (pip -v) says so.

XLA's headers come from the jaxlib that is installed where pip installs, else from its wheel
in jax_requirements.txt. Without them kiln.jax lacks its library, which the log says, too.
"""

import contextlib
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403  what pip calls and this does not change

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("nvrtc", "headers")
OF_PLAN_WORKER = ("cudnn-headers", "frontend")


def missing(parts, packages=()):
    """Those that no toolkit, .deps or folder of packages has, as CMake will see it."""
    folders = ";".join(packages)
    script = str(ROOT / "tools/cmake/NvidiaParts.cmake")
    try:
        found = subprocess.run(
            ["cmake", f"-DKILN_WHEEL_PACKAGES={folders}", "-P", script],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # no CMake yet: then no answer
        found = ""
    lines = (line[3:] for line in found.splitlines() if line.startswith("-- "))
    places = dict(line.split("=", 1) for line in lines)
    return [part for part in parts if not places.get(part)]


def lines_of(parts):
    """What tools/wheels.txt has of these parts."""
    lines, on = [], False
    for line in (ROOT / "tools/wheels.txt").read_text().splitlines():
        if line.startswith("# part "):
            on = line.split()[2] in parts
        elif on and line and not line.startswith("#"):
            lines.append(line)
    return lines


def wheels_of(lines):
    """These requirements, without their hashes."""
    return [line.split()[0] for line in lines if "==" in line]


def fetch(lines, folder, without_them):
    """Puts the wheels into the folder, or says that they cannot be had. The wheels are those
    of one Python, so that one set of hashes is enough: only their headers are used."""
    requirements = Path(folder, "requirements.txt")
    requirements.write_text("\n".join(lines) + "\n")
    pip = [sys.executable, "-I", "-m", "pip"]  # not of the environment for builds
    options = ["--no-deps", "--no-compile", "--require-hashes", "--only-binary=:all:"]
    options += ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=none"]
    options += [f"--platform=manylinux_2_{n}_{platform.machine()}" for n in (28, 27)]
    options += ["--disable-pip-version-check", "--retries=1", "--timeout=15", "--quiet"]
    done = subprocess.run(
        [*pip, "install", *options, "--target", folder, "-r", str(requirements)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if done.returncode != 0:
        said = (done.stdout.strip() or "no reason").splitlines()[-1]
        print(f"{without_them}: cannot fetch {' and '.join(wheels_of(lines))}: {said}")


def jaxlib(folder):
    """Where jaxlib is, with XLA's headers: installed, or fetched into the folder."""
    code = "import importlib.util as u; print(u.find_spec('jaxlib').submodule_search_locations[0])"
    found = subprocess.run(
        [sys.executable, "-I", "-c", code],  # not of the environment for builds
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    ).stdout.strip()
    if found:
        return found
    text = (ROOT / "tools/python/jax_requirements.txt").read_text()
    lines = re.findall(r"^jaxlib==(?:.*\\\n)*.*", text, re.M)
    fetch(lines, folder, "No library of kiln.jax")
    return str(Path(folder, "jaxlib"))


def get_requires_for_build_wheel(config_settings=None):
    requirements = _backend.get_requires_for_build_wheel(config_settings)
    return [*requirements, *wheels_of(lines_of(missing(NEEDED)))]


@contextlib.contextmanager
def packages_with_headers():
    """The folders of packages that have some of NVIDIA's headers."""
    folders = [each for each in dict.fromkeys(sys.path) if Path(each, "nvidia").is_dir()]
    with tempfile.TemporaryDirectory(prefix="kiln-headers-") as fetched:
        if parts := missing(OF_PLAN_WORKER, folders):
            fetch(lines_of(parts), fetched, "No plan worker")
        yield [*folders, fetched]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with packages_with_headers() as folders:
        places = {"PACKAGES": ";".join(folders), "JAXLIB": jaxlib(folders[-1])}
        before = os.environ.get("CMAKE_ARGS", "")
        defined = (f"-DKILN_WHEEL_{name}={place}" for name, place in places.items())
        os.environ["CMAKE_ARGS"] = f"{before} {shlex.join(defined)}".strip()
        try:
            return _backend.build_wheel(wheel_directory, config_settings, metadata_directory)
        finally:
            os.environ["CMAKE_ARGS"] = before
