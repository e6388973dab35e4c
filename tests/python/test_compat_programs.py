"""Programs of the frameworks themselves, as their users write them, run by `python -m kiln run --compat`:
what the device launches, with each name of --compat and without it.

The frameworks are those of PyPI. Apex and GPT-NeoX are not there: Megatron Core imports the same extensions.
"""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from conftest import HERE, KIT, ROOT, environment, needs_torch

from kiln.compat import FRAMEWORKS

pytestmark = needs_torch
PACKAGES = ROOT / ".deps/frameworks"
if not PACKAGES.is_dir():
    pytest.skip(
        "there are no frameworks here: run ./tools/test.sh, which puts them into .deps/frameworks",
        allow_module_level=True,
    )

PROGRAMS = HERE / "programs"
SETTINGS = {
    "KILN_CACHE_DIR": str(KIT.parent / "python-test-cache"),
    "KILN_PYTHON_STRICT": "1",
    "NVTE_PROJECT_BUILDING": "1",  # TransformerEngine loads no library of CUDA
    "TORCHDYNAMO_DISABLE": "1",
    "XFORMERS_FORCE_DISABLE_TRITON": "1",
}


def run(folder, names, program, *arguments, **changes):
    """(status, stdout, stderr, launches) of a program with these names of --compat, or without any."""
    launches = folder / "launches"
    path = f"{PROGRAMS / 'site'}:{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}:{PACKAGES}"
    settings = {**SETTINGS, "PYTHONPATH": path, "KILN_TEST_LAUNCHES": str(launches), **changes}
    prefix = ["-m", "kiln", "run", "--compat", names] if names else []
    done = subprocess.run(
        [sys.executable, *prefix, str(PROGRAMS / program), *arguments],
        env=environment(folder, **settings), cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False,
    )
    assert launches.exists(), done.stderr
    return done.returncode, done.stdout, done.stderr, json.loads(launches.read_text())


def passes(operation, forward, backward=None, kernels=1):
    """Launches of an operation; a backward pass has so many kernels."""
    backward = forward if backward is None else backward
    return Counter({f"{operation}_fwd": forward, f"{operation}_bwd": backward * kernels})


STEPS, LAYERS = 2, 2
OF_LIGER = (
    passes("rmsnorm", 2 * STEPS, kernels=2)
    + passes("layernorm", STEPS, kernels=2)
    + passes("rope", STEPS)
    + passes("swiglu", 2 * STEPS)
    + passes("geglu_tanh", STEPS)
    + passes("squared_relu", STEPS)
    + passes("cross_entropy", STEPS)
)
# Trained twice, once with packed sequences; one token of these is generated.
OF_XFORMERS = (
    passes("attention_plain", 2 * STEPS + 1, 2 * STEPS, kernels=2)
    + passes("attention_empty", STEPS + 1, STEPS)
)
OF_TRANSFORMER_ENGINE = (
    passes("rope", 2 * STEPS)
    + passes("scaled_masked_softmax", STEPS)
    + passes("scaled_softmax", 1)
    + passes("scaled_upper_triang_masked_softmax", 2)
    + passes("cross_entropy", STEPS)
)
SOFTMAX_OF_MEGATRON = (
    passes("scaled_upper_triang_masked_softmax", LAYERS * STEPS)
    + passes("scaled_masked_softmax", 1)
)
NORMS_OF_MEGATRON = passes("layernorm", (2 * LAYERS + 1) * STEPS, kernels=2)

NO_TRITON = "there is no Triton here: the framework's own kernel cannot run"
NO_EXTENSION = "No module named 'scaled_masked_softmax_cuda'"
NO_KERNEL = "there is no compiled part of TransformerEngine here: fused_rope_forward cannot run"
# Of each name: its program, what that launches, and why it cannot run here without Kiln.
CASES = {
    "neox": ("megatron_core", SOFTMAX_OF_MEGATRON, NO_EXTENSION),
    "apex": ("megatron_core", SOFTMAX_OF_MEGATRON + NORMS_OF_MEGATRON, NO_EXTENSION),
    "transformer_engine": ("transformer_engine", OF_TRANSFORMER_ENGINE, NO_KERNEL),
    "liger": ("liger", OF_LIGER, NO_TRITON),
    "xformers": ("xformers", OF_XFORMERS, "No operator found for `memory_efficient_attention_forward`"),
}
# Megatron Core would take more than Kiln has from TransformerEngine.
HIDDEN = {"megatron_core": "transformer_engine"}


def test_each_name_has_a_program():
    of_files = {"triton", "cpp_extension"}  # test_triton.py and test_cpp_extension.py have these
    assert CASES.keys() == FRAMEWORKS.keys() - of_files


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_the_framework_launches_kilns_kernels_and_no_others(name, nvrtc, tmp_path):
    program, expected, _ = CASES[name]
    hidden = {"KILN_TEST_HIDDEN": HIDDEN.get(program)}
    status, said, errors, launches = run(tmp_path, name, f"with_{program}.py", **hidden)
    assert status == 0, errors
    assert launches == expected
    losses = [float(line.split()[1]) for line in said.splitlines() if line.startswith("loss")]
    pairs = list(zip(losses[::STEPS], losses[1::STEPS], strict=True))
    assert pairs and all(after < before for before, after in pairs), said


def test_without_kiln_nothing_is_launched_and_each_needs_kernels_of_its_own(tmp_path):
    reasons = {f"with_{program}.py": why for program, _, why in CASES.values()}
    paths = (str(PROGRAMS / program) for program in reasons)
    status, said, errors, launches = run(tmp_path, "", "each.py", *paths)
    assert (status, launches) == (0, {}), errors
    for reason, line in zip(reasons.values(), said.splitlines(), strict=True):
        assert reason in line


def test_an_option_that_kiln_has_not_is_left_to_the_framework(nvrtc, tmp_path):
    names = "xformers,transformer_engine,liger"
    status, said, errors, launches = run(tmp_path, names, "refused.py", KILN_PYTHON_STRICT=None)
    assert (status, launches) == (0, {}), errors
    lines = said.splitlines()
    for i, (own, warned) in enumerate((
        (CASES["xformers"][2], "attention of tensors of float64"),
        (CASES["transformer_engine"][2], "it has start positions"),
        (NO_TRITON, "neither weights, softcap"),
    )):
        assert own in lines[2 * i] and warned in lines[2 * i + 1], said
