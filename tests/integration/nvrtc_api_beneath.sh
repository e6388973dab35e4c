#!/usr/bin/env bash
# nvrtc_api_beneath.sh KILN PROGRAM: a program that compares a library beneath `kiln run` with the real one, twice
# with one cache. Its calls are counted: at first most are builds, then hits.
set -euo pipefail
kiln=$1 program=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KILN_CACHE_DIR=$folder/cache XDG_RUNTIME_DIR=$folder
unset KILN_NVRTC_STANDIN KILN_RECORD KILN_SEED KILN_REMOTE
count() { "$kiln" stats --json | sed -nE "s/.*\"$1\": ?([0-9]+).*/\1/p"; }
"$kiln" run -- "$program"
built=$(count nvrtc_built) hits=$(count nvrtc_hits)
# Of headers most are built again: they are below a temporary folder of each run.
GTEST_FILTER=-*FindsHeadersAlike "$kiln" run -- "$program"
built_again=$(($(count nvrtc_built) - built)) hits_again=$(($(count nvrtc_hits) - hits))
echo "$built built, $hits hits; then $built_again built, $hits_again hits"
((built > 50 && built_again < built / 4 && hits_again > hits))
