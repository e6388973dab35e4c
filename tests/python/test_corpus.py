"""The kernels of corpus_cases on simulated devices, by the PTX that NVRTC makes of them."""

import pytest
from corpus_cases import CASES

pytestmark = pytest.mark.usefixtures("nvrtc")


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.name)
def test_a_kernel_with_the_libraries_of_cuda_computes_what_numpy_does(case, python):
    said = python(
        f"""
    import kiln.testing
    from corpus_cases import CASES, check
    kiln.testing.use_simulated_device({case.device!r})
    check({{each.name: each for each in CASES}}[{case.name!r}], 0)
""",
        timeout=120,
    )
    assert said == case.prints
