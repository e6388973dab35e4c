#!/bin/sh
# On a machine without a GPU: the kernels of a program in one file, and the job that needs no build.
# Usage: pack.sh PREFIX PROGRAM, in an empty folder
set -eu
PATH="$1/bin:$PATH" program=$2
export KILN_CACHE_DIR="$PWD/built"

for arch in 8.0 9.0; do                                   # the devices of the users
  KILN_RECORD=asked.jsonl kiln run --simulate "$arch" -- "$program"
done
kiln warm --manifest asked.jsonl                          # on any machine: only the manifest is needed
kiln pack -o kernels.kpack                                # one file, which travels with the program

# A node, with a device of 9.0.
export KILN_CACHE_DIR="$PWD/node"
eval "$(kiln run --simulate 9.0 --print-env)"
export KILN_SEED="$PWD/kernels.kpack" KILN_NO_JIT=1       # a missing kernel is an error, and no build
export KILN_LOG=info KILN_EVENTS="$PWD/events.jsonl"      # what the job got, and from where
"$program"
kiln events events.jsonl
