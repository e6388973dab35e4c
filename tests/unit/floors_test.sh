#!/usr/bin/env bash
# Holds every #include of src, cache, tools and python against the floors in src/DESIGN.md: a file may
# include files of its own folder and of folders on lower floors.
set -euo pipefail
cd "$(dirname "$0")/../.."

mapfile -t files < <(find src cache tools python -name '*.h' -o -name '*.cc')
printf '%s\n' "${files[@]}" | awk '
  function folder_of(file) {
    while (sub(/\/[^\/]*$/, "", file)) if (file in floor) return file
    return ""
  }
  function resolve(from, name, local) {
    local = from
    sub(/[^\/]*$/, "", local)
    if ((local name) in known) return local name
    if (("src/" name) in known) return "src/" name
    return name in known ? name : ""
  }
  NR == FNR { known[$0]; next }
  FILENAME == "src/DESIGN.md" {
    if (split($0, cell, "|") < 4 || cell[2] !~ /^ [0-9]+ $/) next
    while (match(cell[3], /`[^`]+`/)) {
      floor[substr(cell[3], RSTART + 1, RLENGTH - 2)] = cell[2] + 0
      cell[3] = substr(cell[3], RSTART + RLENGTH)
    }
    next
  }
  FNR == 1 && (own = folder_of(FILENAME)) == "" { print FILENAME ": on no floor"; wrong = 1 }
  /^ *# *include "/ {
    split($0, part, "\"")
    if ((target = resolve(FILENAME, part[2])) == "") next
    other = folder_of(target)
    if (other != own && floor[other] >= floor[own]) {
      printf "%s:%d: includes %s: %s is on floor %d, %s on %d\n",
             FILENAME, FNR, target, own, floor[own], other, floor[other]
      wrong = 1
    }
  }
  END { exit wrong }' - src/DESIGN.md "${files[@]}"
