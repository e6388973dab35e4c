"""The build backend of kiln-jit-testing: that of kiln-jit, without what the kit does not need."""

import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/python"))

import kiln_build
from kiln_build import *  # noqa: F403  what pip calls and this does not change


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    arguments = os.environ.get("CMAKE_ARGS", "")
    folders = ";".join(each for each in dict.fromkeys(sys.path) if Path(each, "nvidia").is_dir())
    os.environ["CMAKE_ARGS"] = f"{arguments} {shlex.quote(f'-DKILN_WHEEL_PACKAGES={folders}')}".strip()
    try:
        return kiln_build._backend.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        os.environ["CMAKE_ARGS"] = arguments
