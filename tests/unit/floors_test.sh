#!/usr/bin/env bash
# Holds every #include of src, cache, tools and python against the floors in src/DESIGN.md: a file may
# include files of its own folder and of folders on lower floors.
set -euo pipefail
cd "$(dirname "$0")/../.."

mapfile -t files < <(find src cache tools python -name '*.h' -o -name '*.cc')
{
  printf '%s\n' "${files[@]}"
  awk -f tools/includes.awk "${files[@]}"
} | awk '
  function folder_of(file) {
    while (sub(/\/[^\/]*$/, "", file)) if (file in floor) return file
    return ""
  }
  NR == FNR {
    if (split($0, cell, "|") < 4 || cell[2] !~ /^ [0-9]+ $/) next
    while (match(cell[3], /`[^`]+`/)) {
      floor[substr(cell[3], RSTART + 1, RLENGTH - 2)] = cell[2] + 0
      cell[3] = substr(cell[3], RSTART + RLENGTH)
    }
    next
  }
  (own = folder_of($1)) == "" { print $1 ": on no floor"; wrong = 1 }
  NF == 3 {
    other = folder_of($3)
    if (other != own && floor[other] >= floor[own]) {
      printf "%s:%d: includes %s: %s is on floor %d, %s on %d\n",
             $1, $2, $3, other, floor[other], own, floor[own]
      wrong = 1
    }
  }
  END { exit wrong }' src/DESIGN.md -
