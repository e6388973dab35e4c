#!/usr/bin/env python3
"""kiln.ops and kiln.Kernel on a GPU, beside torch and NumPy: the cases of tests/python,
without pytest. tools/gpu-run.sh starts it where it finds a torch with CUDA. An argument names
another device of torch. Exit status: 1 if something failed, else 0."""

import sys

import torch
import without_pytest

import kiln

SOURCE = """
extern "C" __global__ void scale(float* y, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
"""


def a_kernel_computes_on_tensors_of_torch():
    x = torch.arange(1000.0)
    y = torch.empty_like(x)
    kiln.Kernel(SOURCE)(4, 256, y, x, 2.0, 1000)
    assert torch.equal(y, 2 * x)


def tests():
    without_pytest.use_cases()
    import corpus_cases
    from ops_cases import CASES_AND_TYPES, id_of
    from ops_device import check_case

    for case, dtype in CASES_AND_TYPES:
        yield f"{case.name} {id_of(dtype)}", lambda c=case, d=dtype: check_case(c, d)
    yield "kiln.Kernel", a_kernel_computes_on_tensors_of_torch
    for case in corpus_cases.CASES:
        yield case.name, lambda c=case: corpus_cases.check(c, None, on_device, from_device)


def on_device(array):
    return torch.from_numpy(array.copy()).to(torch.get_default_device())


def from_device(tensor):
    return tensor.cpu().numpy()


def seeded(tests):
    for each in tests:
        torch.manual_seed(0)
        yield each


def main():
    # Of the tensors that the cases make, too.
    torch.set_default_device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    return without_pytest.run(seeded(tests()), f"torch {torch.__version__}")


if __name__ == "__main__":
    sys.exit(main())
