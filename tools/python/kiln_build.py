"""The build backend of pyproject.toml: scikit-build-core, and NVIDIA's headers as wheels.

cuda.h, nvrtc.h and CCCL come from an installed toolkit or from .deps. Where neither has them, the
wheels of the same versions as in tools/wheels.txt are required to build, and CMake looks there.
"""

import importlib.util
import os
import shlex
import subprocess
from pathlib import Path

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403  what pip calls and this does not change

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("nvrtc", "headers")


def missing_parts():
    """Those of PARTS that neither a toolkit nor .deps has, as the configuring CMake will see it."""
    try:
        found = subprocess.run(
            ["cmake", "-P", str(ROOT / "tools/cmake/NvidiaParts.cmake")],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # no CMake yet: then no answer
        return PARTS
    places = dict(line[3:].split("=", 1) for line in found.splitlines() if line.startswith("-- "))
    return tuple(part for part in PARTS if not places.get(part))


def wheels_of(part):
    """The requirements of that part in tools/wheels.txt, without their hashes."""
    requirements, on = [], False
    for line in (ROOT / "tools/wheels.txt").read_text().splitlines():
        if line.startswith("# part "):
            on = line.split()[2] == part
        elif on and "==" in line and not line.startswith("#"):
            requirements.append(line.split()[0])
    return requirements


def get_requires_for_build_wheel(config_settings=None):
    requirements = list(_backend.get_requires_for_build_wheel(config_settings))
    for part in missing_parts():
        requirements += wheels_of(part)
    return requirements


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    # Where pip put the wheels that are required above.
    nvidia = importlib.util.find_spec("nvidia")
    folders = [str(Path(each).parent) for each in nvidia.submodule_search_locations] if nvidia else []
    arguments = os.environ.get("CMAKE_ARGS", "")
    places = shlex.quote("-DKILN_WHEEL_PACKAGES=" + ";".join(folders))
    os.environ["CMAKE_ARGS"] = f"{arguments} {places}".strip()
    try:
        return _backend.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        os.environ["CMAKE_ARGS"] = arguments
