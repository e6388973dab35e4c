#!/usr/bin/env bash
# Runs the tests of an unpacked bundle of tools/gpu-bundle.sh: see --help.
set -uo pipefail

usage() {
  cat <<'HELP'
usage: run.sh [--jobs N] [--no-sanitizer] [--no-bench] [-- GoogleTest arguments]

Runs Kiln's tests on the GPUs of this machine: once as they are, then under compute-sanitizer
(memcheck, racecheck) if that program is installed; the benchmarks of the kernels (`kiln bench`) and of
the library; then the package for Python: its operations beside torch's and JAX's, what a call costs, and the
kernels of others on the same problems, if python3 has a torch or a JAX with CUDA. Ends with a summary. Needs only
a CUDA driver; writes logs to the folder results beside this script. On an H200 with 16 cores the tests
take a minute, compute-sanitizer another and `kiln bench` a minute and a half. With a cuDNN 9.8 or later,
also tests attention with cuDNN. It uses the cuDNN that `kiln doctor` finds, else a package of the
python3 on PATH, such as the one that PyTorch installs. Without cuDNN those tests are skipped.

  --jobs N         processes of gpu_test at a time (default: a quarter of the cores, 6 at most)
  --no-sanitizer   leave compute-sanitizer out
  --no-bench       leave the benchmarks out
  -- ARGUMENTS     for gpu_test, for example: -- --gtest_filter='GpuGraphs.*'

Environment:
  KILN_CACHE_DIR   where compiled kernels are kept (default: the folder cache beside this script)
  KILN_NVRTC       the NVRTC to use instead of the one in the bundle
  KILN_CUDNN       a libcudnn.so.9, or its folder
  KILN_DRIVER      the driver to use instead of libcuda.so.1; lib/libkiln-simulated-driver.so needs
                   no GPU

Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 there is no driver or no device.
HELP
}

sanitize=1
bench=1
jobs=$(($(nproc) / 4))
((jobs <= 6)) || jobs=6
((jobs >= 1)) || jobs=1
arguments=()
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --no-sanitizer) sanitize=0 ;;
    --no-bench) bench=0 ;;
    --jobs)
      [[ ${2:-} =~ ^[1-9][0-9]?$ ]] || { echo "run.sh: --jobs takes a number from 1 to 99." >&2 && exit 2; }
      jobs=$2
      shift
      ;;
    --)
      shift
      arguments=("$@")
      break
      ;;
    *)
      echo "run.sh: unknown argument '$1'; see --help (arguments for gpu_test go after --)." >&2
      exit 2
      ;;
  esac
  shift
done

# Prints the cuDNN library of the wheel nvidia-cudnn-cu12 or -cu13.
cudnn_of_python() {
  python3 -c '
import importlib.util, os
for folder in importlib.util.find_spec("nvidia.cudnn").submodule_search_locations:
    library = os.path.join(folder, "lib", "libcudnn.so.9")
    if os.path.exists(library):
        print(library)
        break
' 2>/dev/null
}
python_cudnn=$(cudnn_of_python) # before our libraries are on the path, so that python3 uses its own

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 3
results=$here/results
mkdir -p "$results" || exit 3
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export KILN_CACHE_DIR=${KILN_CACHE_DIR:-$here/cache}
export KILN_WORKER=$here/bin/kiln-worker
# The headers of libraries, for an NVRTC that came without them.
if [[ -z ${CUDA_HOME:-}${CUDA_PATH:-} && -d /usr/local/cuda/include ]]; then
  export CUDA_HOME=/usr/local/cuda
fi
if [[ -z ${KILN_NVRTC:-} && -e $here/lib/nvrtc ]]; then
  KILN_NVRTC=$(realpath "$here/lib/nvrtc") && export KILN_NVRTC
fi

report=""
failed=0
note() { report+=$(printf '  %-28s %s' "$1" "$2")$'\n'; }

# step NAME COMMAND...: runs COMMAND with a log of that name, and notes its outcome for the summary.
step() {
  local name=$1 began=$SECONDS status=0 log outcome=ok
  shift
  log=$results/${name// /-}.log
  printf '== %s\n' "$name"
  "$@" 2>&1 | tee "$log" || status=$?
  ((status == 0)) || { outcome="FAILED ($status), see results/${log##*/}" && failed=1; }
  note "$name" "$outcome, $((SECONDS - began)) s$(counts "$log")"
}

# Prints the sums of the counts in GoogleTest's last lines; nothing if the log has none.
counts() {
  awk '/^\[  PASSED  \]/ {p += $4; any = 1} /^\[  SKIPPED \] [0-9]+ test/ {s += $4}
       /^\[  FAILED  \] [0-9]+ test/ {f += $4}
       END {if (any) printf ": %d passed, %d failed, %d skipped", p, f, s}' "$1"
}

# in_shards COMMAND...: runs a GoogleTest program as $jobs processes, each with a part of the tests, and
# prints their outputs one after the other.
in_shards() {
  local i status=0 work processes=()
  work=$(mktemp -d) || return 1
  for ((i = 0; i < jobs; ++i)); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$i "$@" >"$work/$i" 2>&1 &
    processes+=($!)
  done
  for i in "${!processes[@]}"; do
    wait "${processes[i]}" || status=$?
    cat "$work/$i"
  done
  rm -rf "$work"
  return $status
}

find_sanitizer() {
  local place
  for place in "$(command -v compute-sanitizer)" "${CUDA_HOME:-}/bin/compute-sanitizer" \
    /usr/local/cuda/bin/compute-sanitizer; do
    [[ -x $place ]] && echo "$place" && return
  done
  return 1
}

examine() { "$here/bin/kiln" doctor >"$results/doctor.log" 2>&1; } # exit code ignored: the tests decide
examine
if [[ -n $python_cudnn ]] && grep -q 'cudnn: no libcudnn' "$results/doctor.log"; then
  export KILN_CUDNN=$python_cudnn
  examine
fi
cat "$results/doctor.log"
note cudnn "$(sed -n 's/^[a-z]* *cudnn: //p' "$results/doctor.log" | head -n 1)"

step gpu_test in_shards "$here/bin/gpu_test" "${arguments[@]}"
step gpu_images_test "$here/bin/gpu_images_test"
# What the interpreter of PTX computes, beside the first device.
step gpu_ptx_test "$here/bin/gpu_ptx_test"

if ! ((sanitize)); then
  note compute-sanitizer "left out"
elif [[ ${KILN_DRIVER:-} == *simulated* ]]; then
  note compute-sanitizer "left out: the driver is the simulated one"
elif sanitizer=$(find_sanitizer); then
  # Some tests make calls that the driver refuses, so API errors are not reported. Bandwidth is not
  # measured here, and racecheck leaves out cuDNN's own kernels.
  declare -A without=([memcheck]='GpuBandwidth.*' [racecheck]='GpuBandwidth.*:*AttentionByCudnn*')
  for tool in memcheck racecheck; do
    step "$tool" in_shards "$sanitizer" --tool "$tool" --error-exitcode 9 --report-api-errors no \
      --target-processes application-only "$here/bin/gpu_test" \
      "--gtest_filter=-${without[$tool]}" "${arguments[@]}"
  done
else
  note compute-sanitizer "left out: not on this machine"
fi

if ((bench)); then
  [[ ${KILN_DRIVER:-} == *simulated* ]] || step "kiln bench" "$here/bin/kiln" bench
  [[ ! -x $here/bin/kiln-bench-library ]] || step benchmark "$here/bin/kiln-bench-library"
fi

# Says why not, where the packed package cannot be used here.
python_steps() {
  local why
  export PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
  export KILN_FFI_LIBRARY=$here/lib/libkiln_ffi.so KILN_TEST_KIT=$here/lib
  [[ -e $KILN_FFI_LIBRARY ]] || { note python "left out: not in this bundle" && return; }
  why=$(python3 -c 'from kiln._library import library; library().version()' 2>&1) ||
    { note python "left out: ${why##*$'\n'}" && return; }
  if why=$(python3 -c 'import torch; torch.zeros(1).cuda()' 2>&1); then
    step "python operations" python3 "$here/tests/gpu/python_operations.py"
    ((!bench)) || step peers python3 "$here/tests/bench/compare_with_peers.py" --kiln "$here/bin/kiln" \
      {softmax,rope,layernorm,rmsnorm,activation,glu,cross_entropy_forward,cross_entropy,attention}:dtype=bf16
  else
    note "python operations" "left out: ${why##*$'\n'}"
  fi
  if why=$(python3 -c 'import jax; assert jax.devices("cuda")' 2>&1); then
    step "jax operations" python3 "$here/tests/gpu/jax_operations.py"
  else
    note "jax operations" "left out: ${why##*$'\n'}"
  fi
  ((!bench)) || step "python costs" python3 "$here/tests/bench/python_costs.py"
}
python_steps

printf '\nSummary (logs in %s)\n%s' "$results" "$report"
if ((failed)); then
  echo "FAILED"
  exit 1
fi
if grep -q '^\[  PASSED  \] 0 tests' "$results/gpu_test.log"; then
  grep -m 1 -E 'no CUDA driver|does not start|has no device' "$results/gpu_test.log"
  echo "Nothing was tested: every test was skipped."
  exit 3
fi
