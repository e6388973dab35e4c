#!/usr/bin/env python3
"""kiln.jax on a GPU, beside JAX's own functions: the cases of tests/python. tools/gpu-run.sh
starts it where it finds a JAX with CUDA. Exit status: 1 if something failed, else 0."""

import os
import sys
import types

import without_pytest


def main():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Without it: it gives JAX two simulated devices of the CPU.
    sys.modules["jax_device"] = types.ModuleType("jax_device")
    import jax

    # The formulas in float32, not in TF32.
    jax.config.update("jax_default_matmul_precision", "highest")
    without_pytest.use_cases()
    from jax_cases import CASES

    tests = [
        (f"{case.name} {dtype.__name__}", lambda c=case, d=dtype: c.check(d))
        for case in CASES
        for dtype in case.dtypes
    ]
    return without_pytest.run(tests, f"jax {jax.__version__} on {jax.devices()[0]}")


if __name__ == "__main__":
    sys.exit(main())
