#!/usr/bin/env bash
# Builds the wheel as `pip install .` does, installs it into an environment of its own, and uses it
# there: what is in it, what it needs, the program, a kernel on the simulated driver, README's lines of
# Python if PYTHON has torch, and a plan of cuDNN. Arguments: PYTHON, which has scikit-build-core; the
# folder of the tests' libraries; a wheel that is built already, or nothing.
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
plan_worker=(kiln/libexec/kiln/kiln-plan-worker kiln/libexec/kiln/kiln-no-device-driver.so)
jax=()
[[ -n $wheel ]] || ! "$python" -c 'import jaxlib' 2>/dev/null || jax=(kiln/lib/libkiln_jax.so)

if [[ -z $wheel ]]; then
  say "building the wheel"
  (cd "$root" && "$python" -m pip --disable-pip-version-check wheel -q --no-build-isolation --no-deps \
    -C build-dir="$work/build" -w "$work" .) >"$work/log" 2>&1 || {
    tail -n 40 "$work/log" >&2
    fail "the wheel was not built"
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
  'kiln/lib/libkiln\.so\.[0-9]+\.[0-9]+' kiln/libexec/kiln/kiln-worker kiln/libexec/kiln/standard_headers/limits \
  "${plan_worker[@]}" "${jax[@]}" \
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
for file in "$packages"/kiln/lib/*.so* "$packages"/kiln/bin/kiln "$packages"/kiln/libexec/kiln/kiln-*; do
  newest=$(readelf -VW "$file" | sed -n 's/.*Name: GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
  ((${newest:-0} <= glibc)) || fail "$file needs glibc 2.$newest"
  readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -E 'fmt|spdlog|toml|crypto|xxhash|libstdc\+\+|cuda|nvrtc|cudnn' >"$work/needed" &&
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
if [[ -e $theirs/torch ]]; then
  run -c 'import os, runpy, sys
sys.path.append(sys.argv[1])
os.environ["KILN_TEST_KIT"] = sys.argv[2]
runpy.run_path(sys.argv[3])' "$theirs" "$kit" "$root/tests/python/readme_lines.py"
fi
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
say "passed in $SECONDS s"
