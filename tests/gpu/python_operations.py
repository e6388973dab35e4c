#!/usr/bin/env python3
"""kiln.ops and kiln.Kernel on a GPU, beside torch: the cases of tests/python, without
pytest. tools/gpu-run.sh starts it where it finds a torch with CUDA. An argument names
another device of torch. Exit status: 1 if something failed, else 0."""

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import torch

import kiln

SOURCE = """
extern "C" __global__ void scale(float* y, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
"""


def stand_in_of_pytest():
    """All that the modules of the cases take of it while they are imported."""
    return types.SimpleNamespace(
        importorskip=lambda name, **_: importlib.import_module(name),
        fixture=lambda **_: lambda function: function,
    )


def a_kernel_computes_on_tensors_of_torch():
    x = torch.arange(1000.0)
    y = torch.empty_like(x)
    kiln.Kernel(SOURCE)(4, 256, y, x, 2.0, 1000)
    assert torch.equal(y, 2 * x)


def tests():
    sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
    if importlib.util.find_spec("pytest") is None:
        sys.modules["pytest"] = stand_in_of_pytest()
    from ops_cases import CASES_AND_TYPES, id_of
    from ops_device import check_case

    for case, dtype in CASES_AND_TYPES:
        yield f"{case.name} {id_of(dtype)}", lambda c=case, d=dtype: check_case(c, d)
    yield "kiln.Kernel", a_kernel_computes_on_tensors_of_torch


def main():
    # Of the tensors that the cases make, too.
    torch.set_default_device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    passed, failed = 0, []
    for name, test in tests():
        torch.manual_seed(0)
        try:
            test()
            passed += 1
        except Exception as error:  # the others run all the same
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            failed.append(name)
    print(f"torch {torch.__version__}: {passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
