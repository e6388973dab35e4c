#!/usr/bin/env bash
# From a fresh clone to a warm cache: see --help.
set -uo pipefail

case $#:${1:-} in
  0:) ;;
  1:--help | 1:-h)
    cat <<'HELP'
usage: tools/run.sh

Installs what is missing, builds the release preset, warms the quick subset of the built-in
kernels for compute capability 7.5, 8.6, 9.0 and the devices present, and lists the cache.
No GPU is needed. A second run installs nothing and finds every kernel in the cache.

Debian packages come from apt-get, as root or through sudo. NVRTC, the CUDA headers, cuDNN and
the cuDNN frontend's headers are each taken from an installed toolkit (CUDA_HOME, CUDA_PATH, the
folder of nvcc on PATH, /usr/local/cuda, /usr), else fetched as wheels into .deps.

Environment:
  KILN_NO_TOOLKIT=1   ignore installed toolkits here and in the build. The program itself still
                      finds one on the loader path: KILN_NVRTC names the library it shall use.
  KILN_CACHE_DIR      where the cache is (default: ~/.cache/kiln)

Exit codes: 0 done, 1 a step failed, 2 wrong usage, 3 something is missing that cannot be
installed here; the message names it and the command that installs it.
HELP
    exit 0
    ;;
  *)
    echo "run.sh: takes no argument but --help." >&2
    exit 2
    ;;
esac

. "$(dirname "$0")/setup.sh"

install_packages build
provide_parts nvrtc headers cudnn frontend

say "building the release preset"
build_preset release OFF || die 1 "the build failed"
kiln=build/release/bin/kiln

status=0
warm() { # warm ARCHITECTURES
  say "$kiln warm --quick --arch $1"
  "$kiln" warm --quick --arch "$1" || status=$?
}
warm 7.5,8.6,9.0
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  warm native # by itself: a device that this NVRTC cannot build for spoils nothing else
fi

say "$kiln ls"
"$kiln" ls || status=$?

cat <<NEXT

What to try next, with $PWD/build/release/bin on PATH:
  kiln templates                               every kernel and its parameters
  kiln render scaled_softmax_fwd:dtype=bf16    the source that is compiled
  kiln doctor                                  what is on this machine, and what to do about it
and here:
  ./tools/test.sh                              build and run every test that needs no GPU
NEXT
exit $status
