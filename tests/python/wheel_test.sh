#!/usr/bin/env bash
# Builds the wheel by tools/python/build_wheel.sh, installs it into an environment of its own, and uses it
# there: what is in it, its tag, what it needs, the program, a kernel on the simulated driver; if PYTHON
# has torch, README's lines of Python, and torch and kiln in both orders, also with the torch in the folder
# KILN_OLDEST_TORCH, if that is set; a plan of cuDNN; the wheel of the test kit. Arguments: PYTHON, which has
# scikit-build-core; the folder of the tests' libraries; a wheel of kiln-jit that is built already, or nothing.
set -euo pipefail

if (($# < 2 || $# > 3)); then
  echo "usage: wheel_test.sh PYTHON KIT [WHEEL]" >&2
  exit 2
fi
python=$1 kit=$(cd "$2" && pwd) wheel=${3:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
say() { printf '== %s\n' "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
place_of() { # place_of PART: where a build finds it
  cmake -P "$root/tools/cmake/NvidiaParts.cmake" 2>&1 | sed -n "s/^-- $1=//p"
}
torches=()
plan_worker=(kiln/libexec/kiln/kiln-plan-worker kiln/libexec/kiln/kiln-no-device-driver.so)
jax=()
remote=()
[[ ! -e $kit/../bin/kiln-remote ]] || remote=(kiln/libexec/kiln/kiln-remote)
[[ -n $wheel ]] || ! "$python" -c 'import jaxlib' 2>/dev/null || jax=(kiln/lib/libkiln_jax.so)

if [[ -z $wheel ]]; then
  build=("$root/tools/python/build_wheel.sh" "$work")
  if ! "$python" -m pip --disable-pip-version-check install -q --no-deps --require-hashes --target "$work/tools" \
    -r "$root/tools/python/wheel_requirements.txt" >"$work/log" 2>&1; then
    say "auditwheel cannot be had here: the wheel has no tag of a glibc"
    build=("$python" -m pip --disable-pip-version-check wheel --no-build-isolation --no-deps -w "$work" "$root" "$root/python/testing")
  fi
  say "building the wheels"
  PATH=$(dirname "$python"):$work/tools/bin:$PATH PYTHONPATH=$work/tools "${build[@]}" >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    fail "the wheels were not built"
  }
  wheel=$(echo "$work"/kiln_jit-*.whl)
  if [[ -z $(place_of cudnn-headers) || -z $(place_of frontend) ]]; then
    say "no plan worker: the headers of cuDNN or of its frontend are missing here"
    plan_worker=()
  fi
fi
say "$(basename "$wheel"), $(($(stat -c %s "$wheel") >> 20)) MiB"
[[ $(basename "$wheel") == kiln_jit-*-py3-none-*_x86_64.whl ]] || fail "its name is wrong"

say "what it has"
"$python" -m zipfile -l "$wheel" | awk 'NR > 1 { print $1 }' >"$work/files"
for file in kiln/__init__.py kiln/py.typed kiln/compat/children/sitecustomize.py kiln/bin/kiln kiln/lib/libkiln_ffi.so \
  'kiln/lib/libkiln\.so\.[0-9]+\.[0-9]+' kiln/libexec/kiln/kiln-worker kiln/libexec/kiln/libkiln-audit.so kiln/libexec/kiln/standard_headers/limits \
  "${plan_worker[@]}" "${jax[@]}" "${remote[@]}" \
  'kiln_jit-.*/licenses/LICENSE' 'kiln_jit-.*/licenses/NOTICE'; do
  grep -qxE "$file" "$work/files" || fail "it has no $file"
done
if grep -v /standard_headers/ "$work/files" | grep -E '(\.h|\.cmake)$|/man1/|__pycache__' >&2; then
  fail "nobody needs these in a wheel"
fi

say "installing it"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install -q --no-deps "$wheel"
packages=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# What it depends on, from the environment that built it.
theirs=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for each in tvm_ffi numpy numpy.libs typing_extensions.py; do
  [[ ! -e $theirs/$each ]] || ln -s "$theirs/$each" "$packages/$each"
done
for each in "$theirs"/apache_tvm_ffi-*.dist-info; do ln -s "$each" "$packages/"; done

say "what its files need"
# The glibc that README promises, where this one has no newer versions of the same functions.
glibc=$(sed -n 's/.*with glibc 2\.\([0-9]*\) or later.*/\1/p' "$root/python/README.md")
[[ -n $glibc ]] || fail "python/README.md does not say which glibc a wheel needs"
[[ $(getconf GNU_LIBC_VERSION) == 'glibc 2.3'[4-6] ]] || glibc=999
theirs_too=""
if [[ $wheel == *-manylinux_* ]]; then
  [[ $glibc == 999 || $wheel == *-manylinux_2_"$glibc"_x86_64.whl ]] || fail "its tag is not manylinux_2_$glibc"
  theirs_too='|libsqlite3\.so|libzstd\.so|liblz4\.so|libminizip\.so' # it has them, under names of its own
fi
for file in "$packages"/kiln/lib/*.so* "$packages"/kiln/bin/kiln "$packages"/kiln/libexec/kiln/*kiln-*; do
  newest=$(readelf -VW "$file" | sed -n 's/.*Name: GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  ((${newest:-0} <= glibc)) || fail "$file needs glibc 2.$newest"
  readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -E "fmt|spdlog|toml|crypto|curl|xxhash|libstdc\+\+|cuda|nvrtc|cudnn$theirs_too" >"$work/needed" &&
    fail "$file needs $(xargs <"$work/needed"), which it should bring along or find later"
  readelf -dW "$file" | grep -E 'R(UN)?PATH' | grep -v 'ORIGIN' >&2 && fail "$file has a path of this machine"
  true
done

say "using it, without the environment being activated"
nvrtc=${KILN_NVRTC:-$(place_of nvrtc)}
cudnn=${KILN_CUDNN:-}
for file in "$(place_of cudnn)"/lib{,64}/libcudnn.so.9; do
  [[ -n $cudnn || ! -e $file ]] || cudnn=$file
done
run() {
  env -i PATH="$PATH" HOME="$work" KILN_NVRTC="$nvrtc" KILN_CUDNN="$cudnn" \
    KILN_DRIVER="$kit/libkiln-simulated-driver.so" timeout 120 "$work/venv/bin/python" "$@"
}
cd "$work"
run -m kiln --version
run - <<'CODE'
import kiln
scale = kiln.Kernel('extern "C" __global__ void scale(float* y, float x) { *y *= x; }')
scale(1, 1, None, 2.0)
assert len(scale.key) == 64 and kiln.statistics()["compiled"] == 1
print("a kernel was built, loaded and launched")
CODE
if ((${#remote[@]})); then
  for cache in one two; do # what the first builds, the second fetches
    run - "$cache" <<'CODE'
import kiln, os, sys
remote = f"file://{os.getcwd()}/remote;unsigned=1"
builds = sys.argv[1] == "one"
kiln.configure(cache_dir=os.path.abspath(sys.argv[1]), no_jit=not builds,
               remote=remote + ";mode=rw" * builds)
kiln.Kernel('extern "C" __global__ void shared(float* y) { *y = 1; }').prepare(0)
counts = kiln.statistics()
assert counts["compiled" if builds else "remote_hits"] == 1, counts
print("a kernel was", "built and sent" if builds else "fetched")
CODE
  done
fi
[[ ! -e $theirs/torch ]] || torches=("$theirs" ${KILN_OLDEST_TORCH:+"$KILN_OLDEST_TORCH:$theirs"})
for torch in "${torches[@]}"; do
  run -c 'import os, runpy, sys
sys.path += sys.argv[1].split(":")
os.environ["KILN_TEST_KIT"] = sys.argv[2]
runpy.run_path(sys.argv[3])
print("with torch", sys.modules["torch"].__version__)' "$torch" "$kit" "$root/tests/python/readme_lines.py"
  for first in kiln torch; do
    run - "$torch" $first <<'CODE'
import sys
sys.path += sys.argv[1].split(":")
def use_torch():
    import torch
    assert torch.linalg.inv(torch.eye(8)).sum() == 8
def use_kiln():
    import kiln
    kiln.Kernel('extern "C" __global__ void fill(float* y, float x) { *y = x; }').prepare(0)
calls = [use_kiln, use_torch] if sys.argv[2] == "kiln" else [use_torch, use_kiln]
for call in calls * 2:
    call()
import hashlib, sqlite3, ssl
hashlib.sha256(b"kiln"), sqlite3.connect(":memory:"), ssl.create_default_context()
CODE
  done
done
sed -n 's/^name = "\(.*\)"$/\1/p' "$root"/templates/*/kernel.toml | run -c '
import kiln, sys
templates = sys.stdin.read().split()
found = kiln.warm(template=templates, arch="9.0", dry_run=True, progress=False)
assert found.missing >= len(templates) > 20, found
print(f"it has all {len(templates)} templates")
'
if ((${#plan_worker[@]})) && [[ -n $cudnn ]]; then
  run -m kiln attention warm --profile h200 --pass fwd --dtype bf16 --batch 1 --heads 2 --sq 128 \
    --skv 128 --dqk 64 --mask none 2>&1 | tee "$work/log"
  grep -q '1 compiled' "$work/log" || fail "the plan worker built no plan"
fi
testing=$(echo "$work"/kiln_jit_testing-*.whl)
if [[ -e $testing ]]; then
  say "$(basename "$testing"), $(($(stat -c %s "$testing") >> 20)) MiB: a kernel runs, and a fault is found"
  "$work/venv/bin/python" -m pip --disable-pip-version-check install -q --no-deps "$testing"
  "$work/venv/bin/python" -c 'from importlib.metadata import entry_points as e; assert "kiln-testing" in e(group="pytest11").names'
  env -i PATH="$PATH" HOME="$work" KILN_NVRTC="$nvrtc" timeout 120 "$work/venv/bin/python" - <<'CODE'
import kiln, kiln.testing, numpy
kiln.testing.use_simulated_device("9.0")
own = kiln.Kernel('extern "C" __global__ void own(int* y) { __shared__ int s[64]; s[threadIdx.x] = 7; y[threadIdx.x] = s[63 - threadIdx.x]; }')
y = numpy.zeros(64, numpy.int32)
own(1, 64, y)
found = kiln.testing.report()
assert 7 in y and any("race in shared memory" in line for line in found), found
CODE
  printf 'import ctypes\ncuda, n = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()\nprint(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(n)), n.value)\n' \
    >"$work/devices.py"
  said=$(env -i PATH="$PATH" HOME="$work" timeout 60 "$work/venv/bin/python" -m kiln run --simulate 8.6,9.0 "$work/devices.py")
  [[ $said == "0 0 2" ]] || fail "two devices were asked for: $said"
fi
say "passed in $SECONDS s"
