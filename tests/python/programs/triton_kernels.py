"""Compiles kernels of Triton without a GPU: `triton_kernels.py BLOCK...`, a kernel for each.

Prints the digest of each kernel's files. "broken" is a kernel that Triton refuses, twice.
"""

import hashlib
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TYPES = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < n
    tl.store(out + at, tl.load(x + at, mask=there) + tl.load(y + at, mask=there), mask=there)


@triton.jit
def broken_kernel(x, y, out, n, BLOCK: tl.constexpr):
    tl.store(out, tl.arange(0, BLOCK - 1))


def compiled(kernel, block, arch=90):
    if triton.__version__.startswith("3.0."):
        source = ASTSource(kernel, ",".join(list(TYPES.values())[:4]), constants={4: block})
    else:
        source = ASTSource(kernel, TYPES, {"BLOCK": block})
    return triton.compile(source, target=GPUTarget("cuda", arch, 32))


def main(blocks):
    for block in blocks:
        if block == "broken":
            kept = []  # as an interactive session keeps the last exception, and what it refers to
            for _ in range(2):
                try:
                    compiled(broken_kernel, 64)
                except Exception as error:
                    kept.append(error)
            print("broken", len(kept))
            continue
        asm = compiled(add_kernel, int(block)).asm
        # The source is left out of packs.
        texts = [asm[kind] if isinstance(asm[kind], bytes) else asm[kind].encode() for kind in ("ttir", "ptx", "cubin")]
        print(block, hashlib.sha256(b"".join(texts)).hexdigest()[:12], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
