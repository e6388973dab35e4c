#!/usr/bin/env bash
# short_run.sh FUZZER CORPUS...: fuzzes for some seconds from a copy of what is kept, so that a run
# changes no file of the project. An input that fails is left in the working directory.
#
# KILN_FUZZ_SECONDS: how long. Without it 20,000 inputs, for at most 10 s.
set -euo pipefail
fuzzer=$1
seconds=${KILN_FUZZ_SECONDS:-}
[[ $seconds =~ ^([1-9][0-9]*)?$ ]] || {
  echo "KILN_FUZZ_SECONDS is '$seconds', which is no number of seconds" >&2
  exit 2
}
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
for kept in "${@:2}"; do cp -- "$kept"/* "$corpus"; done
length=(-max_total_time="${seconds:-10}")
[[ -n $seconds ]] || length+=(-runs=20000)
# Its own limits are a time for one input and none for what lies between.
timeout "$((${seconds:-10} + 110))" \
  "$fuzzer" "${length[@]}" -timeout=25 -artifact_prefix="$(basename "$fuzzer")-" "$corpus"
