#!/usr/bin/env bash
# bundle_test.sh SOURCE BUILD: what tools/gpu-bundle.sh packs of BUILD runs elsewhere, with
# an empty environment, and loads nothing but its own libraries and glibc's.
set -euo pipefail

source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "bundle_test.sh: $*" >&2
  exit 1
}

status=0
"$source/tools/gpu-bundle.sh" --build "$build" "$work/packed" || status=$?
[[ $status != 3 ]] || exit 77 # no NVRTC here; the script says so
[[ $status == 0 ]] || fail "packing ended with $status"
mv "$work/packed" "$work/elsewhere"
bundle=$work/elsewhere

alone=(env -i PATH=/usr/bin:/bin)
foreign=$("${alone[@]}" LD_LIBRARY_PATH="$bundle/lib" ldd "$bundle"/bin/* | awk '$2 == "=>" {print $1, $3}' |
  grep -vE "$bundle/lib/|^(libc|libm|libdl|libpthread|librt|libresolv)\.so" || true)
[[ -z $foreign ]] || fail "from outside: $foreign"

if [[ -x $build/bin/kiln-plan-worker ]]; then
  for file in kiln-plan-worker kiln-no-device-driver.so; do
    [[ -e $bundle/bin/$file ]] || fail "$file is not in it"
  done
fi

driver=$bundle/lib/libkiln-simulated-driver.so
"${alone[@]}" KILN_DRIVER="$driver" KILN_SIMULATED_DEVICES=7.5,9.0 "$bundle/run.sh" --no-bench \
  -- --gtest_filter='GpuDevices.*' | tee "$work/said" || fail "run.sh ended with $?"
grep -q '^\[  PASSED  \] 3 tests' "$bundle/results/gpu_test.log" || fail "not all of it ran"

# Here is no torch for the package for Python, which is said; or no python3 that it was built for.
grep -qE '^  python( operations)? +left out: ' "$work/said" || fail "nothing is said of Python"
if [[ -e $build/lib/libkiln_ffi.so ]] && "${alone[@]}" PYTHONPATH="$bundle/python" python3 -c 'import tvm_ffi'; then
  "${alone[@]}" KILN_FFI_LIBRARY="$bundle/lib/libkiln_ffi.so" KILN_TEST_KIT="$bundle/lib" \
    KILN_NVRTC="$(realpath "$bundle/lib/nvrtc")" KILN_WORKER="$bundle/bin/kiln-worker" LD_LIBRARY_PATH="$bundle/lib" \
    python3 "$bundle/tests/bench/python_costs.py" --smoke --filter '^(import|first/warm)' >"$work/costs" || fail "its bench"
  ! grep 'left out' "$work/costs" || fail "its bench left rows out"
fi

# Without devices nothing is tested, which is said.
status=0
"${alone[@]}" KILN_DRIVER="$driver" KILN_SIMULATED_DEVICES= "$bundle/run.sh" --no-bench \
  >"$work/without" 2>&1 || status=$?
[[ $status == 3 ]] || fail "without devices run.sh ended with $status"
