#!/bin/sh
# The Kiln path of a program, on a machine without a GPU: kernels are built for real, and loaded
# and launched on simulated devices, which compute nothing. Usage: ci.sh PREFIX PROGRAM
set -eu
prefix=$1 program=$2
export KILN_DRIVER="$prefix/lib/kiln/testing/libkiln-simulated-driver.so"
export KILN_SIMULATED_DEVICES=8.0,9.0
export KILN_CACHE_DIR="$PWD/kiln-cache"

KILN_RECORD=asked.jsonl "$program"                       # builds, loads and launches on both
"$prefix/bin/kiln" warm --manifest asked.jsonl           # all of that is in the cache now
KILN_NO_JIT=1 "$program"                                 # as a job: nothing is built
if KILN_SIMULATED_FAULTS=cuModuleLoadDataEx=2,cuLibraryLoadData=2 "$program"; then
  echo "it should have said that the device has no memory left" >&2
  exit 1
fi
