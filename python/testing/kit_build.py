"""The build backend of kiln-jit-testing: that of kiln-jit, without what the kit does not need."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/python"))

import kiln_build
from kiln_build import *  # noqa: F403  what pip calls and this does not change


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    places = {"PACKAGES": ";".join(kiln_build.installed_packages())}
    return kiln_build.build_with(places, wheel_directory, config_settings, metadata_directory)
