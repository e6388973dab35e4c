"""JAX with two devices of the CPU, each of them a simulated device of another kind.

In pytest's own process. Kernels are built into a cache in the build tree, so that only the first run
builds. Imports no JAX: the tests of the handlers need none.
"""

import functools
import os
import sys

import pytest
from conftest import KIT, has_nvrtc

import kiln
import kiln.testing

sys.modules["torch"] = None  # tvm_ffi would import it, which takes seconds
# Before JAX is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"


@functools.cache
def why_not_used():
    """Uses the devices; says why that cannot be, if it cannot."""
    if not (KIT / "libkiln_jax.so").exists():
        return "libkiln_jax.so was not built: CMake's Python has no jaxlib"
    if not has_nvrtc():
        return "no NVRTC here"
    kiln.configure(cache_dir=KIT.parent / "python-test-cache")
    kiln.testing.use_simulated_device("9.0,8.6")
    return None


@pytest.fixture(autouse=True)
def device():
    if why_not_used() is not None:
        pytest.skip(why_not_used())


def images(first):
    """The images of the launches from that one on."""
    driver = kiln.testing.driver()
    room = driver.kiln_simulated_launches(None, 0)
    launches = (kiln.testing._Launch * room)()
    driver.kiln_simulated_launches(launches, room)
    return [each.image for each in launches[first:]]
