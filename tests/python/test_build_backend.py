"""What a build of the wheel requires: tools/python/kiln_build.py, without .deps."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, environment

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")

TREE = (
    "pyproject.toml",
    "tools/cmake/NvidiaParts.cmake",
    "tools/python/jax_requirements.txt",
    "tools/python/kiln_build.py",
    "tools/wheels.txt",
)
CODE = """
import contextlib, io, json, kiln_build
required = kiln_build.get_requires_for_build_wheel()
with contextlib.redirect_stdout(io.StringIO()) as said:
    with kiln_build.packages_with_headers() as folders:
        missing = kiln_build.missing(kiln_build.OF_PLAN_WORKER, folders)
print(json.dumps([sorted(r for r in required if "nvidia" in r), missing, said.getvalue()]))
"""
# Arguments: the Python into which pip installs, and the folder for what is fetched.
JAXLIB = """
import sys, kiln_build
sys.executable = sys.argv[1]
print(kiln_build.jaxlib(sys.argv[2]))
"""


def pins(*parts):
    """The requirements of these parts in tools/wheels.txt."""
    found, part = [], None
    for line in (ROOT / "tools/wheels.txt").read_text().splitlines():
        if match := re.match(r"# part (\S+)", line):
            part = match[1]
        elif part in parts and (match := re.match(r"[\w-]+==\S+", line)):
            found.append(match[0])
    return sorted(found)


@pytest.fixture
def run(tmp_path):
    """Runs code that imports kiln_build, with settings; returns what it printed."""
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    paths = {"PYTHONPATH": str(tmp_path / "tools/python"), "CUDA_PATH": None}
    pip = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_NO_INDEX": "1",
    }

    def call(code, *arguments, **settings):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=tmp_path,
            env=environment(tmp_path, **paths, **pip, **settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    return call


@pytest.fixture
def build(run):
    """Runs the hooks with settings: the wheels of NVIDIA that are required, the parts for
    the plan worker that are missing then, and what was said."""
    return lambda **settings: json.loads(run(CODE, **settings))


def put_wheel(folder, name, files):
    """A wheel with these files, which depends on what is nowhere; its line of wheels.txt."""
    about = f"{name}-1.0.dist-info"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    files |= {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        "Requires-Dist: nowhere\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def test_headers_that_no_toolkit_has_come_from_wheels(build, tmp_path):
    cudnn = {"cudnn.h": "", "cudnn_version.h": "#define CUDNN_MAJOR 9\n"}
    cudnn = {f"nvidia/cudnn_jit/include/{name}": text for name, text in cudnn.items()}
    wheels = tmp_path / "tools/wheels.txt"
    others = re.sub(r"# part (cudnn-headers|frontend) [^#]*", "", wheels.read_text())
    others += "# part cudnn-headers\n" + put_wheel(tmp_path, "cudnn", cudnn)
    others += "# part frontend\n"
    others += put_wheel(tmp_path, "frontend", {"include/cudnn_frontend.h": ""})
    wheels.write_text(others)
    assert build(KILN_NO_TOOLKIT="1") == [pins("nvrtc", "headers"), [], ""]


def test_without_cudnns_headers_the_build_says_so_and_goes_on(build):
    required, missing, said = build(KILN_NO_TOOLKIT="1")
    assert required == pins("nvrtc", "headers") and len(required) == 4
    assert missing == ["cudnn-headers", "frontend"]
    assert said.startswith("No plan worker: cannot fetch nvidia-cudnn-"), said
    assert said.count("\n") == 1, said


def test_of_a_toolkit_with_cudnn_the_headers_are_enough(build, tmp_path):
    toolkit = tmp_path / "toolkit"
    texts = {
        "include/cuda.h": "#define CUDA_VERSION 13000\n",
        "include/cudnn_version.h": "#define CUDNN_MAJOR 9\n",
    }
    of_cuda = ("cuda_fp16.h", "cuda_bf16.h", "crt/host_defines.h", "cub/cub.cuh")
    for header in (*of_cuda, "nvrtc.h", "cudnn.h", "cudnn_frontend.h"):
        texts[f"include/{header}"] = ""
    for library in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        texts[f"lib64/{library}"] = ""
    for name, text in texts.items():
        (toolkit / name).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / name).write_text(text)
    assert build(CUDA_HOME=str(toolkit)) == [[], [], ""]


def a_python(folder, finds_jaxlib):
    """One that has jaxlib in that folder, or none, and otherwise is this one."""
    path = folder / "a-python"
    answer = f"echo {folder}/jaxlib" if finds_jaxlib else "exit 1"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *find_spec*) {answer} ;; *) exec {sys.executable} "$@" ;; esac\n'
    )
    path.chmod(0o755)
    return path


def test_xlas_headers_come_from_the_installed_jaxlib(run, tmp_path):
    said = run(JAXLIB, a_python(tmp_path, True), tmp_path / "fetched")
    assert said == f"{tmp_path}/jaxlib\n"


def test_xlas_headers_come_from_a_wheel_where_no_jaxlib_is_installed(run, tmp_path):
    header = "jaxlib/include/xla/ffi/api/c_api.h"
    line = put_wheel(tmp_path, "jaxlib", {header: "#define XLA_FFI_API_MINOR 3\n"})
    (tmp_path / "tools/python/jax_requirements.txt").write_text(f"jax==1.0\n{line}ml==1.0\n")
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    assert run(JAXLIB, a_python(tmp_path, False), fetched) == f"{fetched}/jaxlib\n"
    assert (fetched / header).exists()


def test_without_xlas_headers_the_build_says_so_and_goes_on(run, tmp_path):
    said = run(JAXLIB, a_python(tmp_path, False), tmp_path)
    assert said.startswith("No library of kiln.jax: cannot fetch jaxlib=="), said
    assert said.endswith(f"\n{tmp_path}/jaxlib\n") and said.count("\n") == 2, said


def test_the_headers_are_of_the_version_of_cudnn_that_the_tests_use():
    (headers,), (whole,) = pins("cudnn-headers"), pins("cudnn")
    assert headers.partition("==")[2] == whole.partition("==")[2]
