#!/usr/bin/env bash
# includers.sh HEADER...: prints the .cc files of the product, below the current folder, that include one
# of these headers, themselves or through others. The nearest come first.
set -euo pipefail
mapfile -t files < <(find src cache tools python tests/support/simulated_driver -name '*.h' -o -name '*.cc' | sort)
awk -f "$(dirname "$0")/includes.awk" "${files[@]}" | awk -v changed="$*" '
  { includers[$3] = includers[$3] " " $1 }
  END {
    n = split(changed, queue)
    for (i = 1; i <= n; ++i) seen[queue[i]]
    for (i = 1; i <= n; ++i) {
      if (queue[i] ~ /\.cc$/) print queue[i]
      count = split(includers[queue[i]], found)
      for (k = 1; k <= count; ++k)
        if (!(found[k] in seen)) { seen[found[k]]; queue[++n] = found[k] }
    }
  }'
