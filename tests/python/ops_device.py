"""The simulated device that the tests of kiln.ops share, in pytest's own process."""

import functools
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kiln  # noqa: E402
import kiln.testing  # noqa: E402
from ops_cases import gradients_of, outputs_of  # noqa: E402


CAPABILITIES = "9.0,9.0"  # set it where a file is imported


@functools.cache
def why_not_used():
    """Uses the device; says why that cannot be, if it cannot.

    Kernels are built into a cache in the build tree, so that only the first run builds.
    """
    kit = os.environ.get("KILN_TEST_KIT")
    if kit is None:
        return "KILN_TEST_KIT does not say where the build is"
    kiln.configure(cache_dir=Path(kit).resolve().parent / "python-test-cache")
    kiln.testing.use_simulated_device(CAPABILITIES)
    try:
        kiln.prepare("squared_relu", (1, 1), dtype=torch.float32)
    except kiln.Unavailable as error:
        if "different builds" in str(error):  # this tree is not wholly built
            raise
        return f"kernels cannot be built: {error}"
    return None


@pytest.fixture(autouse=True)
def device():
    """Tensors of the CPU are on a simulated device; each test has equal random numbers."""
    if why_not_used() is not None:
        pytest.skip(why_not_used())
    torch.manual_seed(0)


def launched():
    """The entry points that were launched since the process began."""
    return [each.function for each in kiln.testing.launches()]


def worst_error(result, reference):
    """Relative to the largest element; 0 for tensors without elements."""
    if reference.numel() == 0:
        return 0.0
    scale = max(1.0, reference.abs().max().item())
    return (result.double() - reference.double()).abs().max().item() / scale


def check_as_good_as_torch(result, same_type, exact, what):
    """``result`` is as near to the float64 result as torch's in the same type: within
    twice its error, or two roundings; of a float four, as each term of a sum may have a
    slope that is off by three."""
    assert result.shape == exact.shape, what
    assert result.dtype == same_type.dtype, what
    assert torch.isfinite(result).all() == torch.isfinite(exact).all(), what
    rounding = torch.finfo(result.dtype).eps
    roundings = 4 if result.dtype == torch.float32 else 2
    bound = max(2 * worst_error(same_type, exact), roundings * rounding)
    error = worst_error(result, exact)
    assert error <= bound, f"{what} is off by {error:.3g}, at most {bound:.3g}"


def check_case(case, dtype):
    """Results and gradients of a case are as good as torch's."""
    inputs = case.inputs(dtype)
    exact_inputs = [each.detach().double().requires_grad_() for each in inputs]
    result, same, exact = case.kiln(*inputs), case.torch(*inputs), case.torch(*exact_inputs)
    of = zip(outputs_of(result), outputs_of(same), outputs_of(exact), strict=True)
    for i, triple in enumerate(of):
        check_as_good_as_torch(*triple, f"output {i}")
    gradients = zip(
        gradients_of(result, inputs),
        gradients_of(same, inputs),
        gradients_of(exact, exact_inputs),
        strict=True,
    )
    for i, triple in enumerate(gradients):
        check_as_good_as_torch(*triple, f"gradient {i}")
