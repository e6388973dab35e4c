"""Extensions that include all of torch, whose compile takes half a minute each: bindings that torch writes, and its
precompiled header."""

import subprocess
import sys

from conftest import environment
from test_cpp_extension import pytestmark  # noqa: F401

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
