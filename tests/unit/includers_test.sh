#!/usr/bin/env bash
# tools/includers.sh finds every file that a changed header can break, the nearest first, and ends though
# two headers include each other.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-includers.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p src/a src/b cache tools python tests/support/simulated_driver
echo '#include "b/far.h"' >src/a/changed.h
echo '  #  include "a/changed.h"' >src/b/far.h
echo '#include "far.h"' | tee src/b/through_another.cc src/b/beside.h >/dev/null
echo '#include "src/b/beside.h"' >tests/support/simulated_driver/through_two.cc
echo '#include "a/changed.h"' >tools/itself.cc
printf '#include <string>\n// #include "a/changed.h"\n#include "a/changed_not.h"\n' >cache/no.cc
"$root/tools/includers.sh" src/a/changed.h >found
diff - found <<'FILES'
tools/itself.cc
src/b/through_another.cc
tests/support/simulated_driver/through_two.cc
FILES
[[ -z $("$root/tools/includers.sh") ]]
