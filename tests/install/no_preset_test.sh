#!/usr/bin/env bash
# Configures with no preset, as packagers do: then no file is compiled together with others whose includes it
# would have, too. Compiles the files of one folder, or all. Arguments: see CMakeLists.txt.
set -euo pipefail

if (($# < 1)); then
  echo "usage: no_preset_test.sh FOLDER|all [CMAKE_ARGUMENT...]" >&2
  exit 2
fi
what=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-no-preset.XXXXXX")
trap 'rm -rf "$work"' EXIT

cmake -S "$root" -B "$work" -G "Unix Makefiles" "${@:2}"
if [[ $what == all ]]; then
  make -C "$work" -j 2
else
  # CMake has a target for each object, which needs no other library first.
  mapfile -t objects < <(make -C "$work/$what" help | sed -n 's/^\.\.\. \(.*\.o\)$/\1/p')
  printf '%s\n' "${objects[@]}" | diff - <(cd "$root/$what" && printf '%s\n' *.cc | sed 's/cc$/o/')
  make -C "$work/$what" -j 2 "${objects[@]}"
fi
