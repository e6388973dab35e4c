#!/usr/bin/env bash
# From a fresh clone to a warm cache: see --help.
set -uo pipefail

more_nvrtc=()
case $#:${1:-} in
  0:) ;;
  2:--nvrtc)
    [[ $2 == 12 ]] || {
      echo "run.sh: --nvrtc takes 12, not '$2'." >&2
      exit 2
    }
    more_nvrtc=("nvrtc-$2")
    ;;
  1:--help | 1:-h)
    cat <<'HELP'
usage: tools/run.sh [--nvrtc 12]

Installs what is missing, builds the release preset, warms the quick subset of the built-in
kernels for compute capability 7.5, 8.6, 9.0 and the devices present, and shows the cache's
contents. The first run takes about 4 minutes on two cores, plus downloads. No GPU is needed.
A second run installs nothing and finds every kernel in the cache.

  --nvrtc 12  fetches an NVRTC 12, too, as a wheel into .deps, where the program of this clone finds
              it: for nodes with a driver of CUDA 12 (kiln warm --driver 12.4), and for Volta

Debian packages are installed with apt-get, as root or through sudo. NVRTC, the CUDA headers, cuDNN
and the cuDNN frontend's headers are each taken from an installed toolkit (CUDA_HOME, CUDA_PATH, the
folder of nvcc on PATH, /usr/local/cuda, /usr), else fetched as wheels into .deps.

Environment:
  KILN_NO_TOOLKIT=1   ignore installed toolkits in this script and in the build. The program itself
                      still finds one on the loader path; set KILN_NVRTC to choose its library.
  KILN_CACHE_DIR      where the cache is (default: ~/.cache/kiln)

Exit codes: 0 done, 1 a step failed, 2 wrong usage, 3 a missing part cannot be installed here; the
message names it and the command that installs it.
HELP
    exit 0
    ;;
  *)
    echo "run.sh: takes no argument but --nvrtc 12 and --help." >&2
    exit 2
    ;;
esac

. "$(dirname "$0")/setup.sh"

began=$SECONDS
report=""
part_began=$SECONDS
note() { # note WHAT: adds a line to the table at the end, with the time since the last note
  report+=$(printf '%5d s  %s' $((SECONDS - part_began)) "$1")$'\n'
  part_began=$SECONDS
}

kiln=build/release/bin/kiln
if [[ -x $kiln ]]; then
  say "building what has changed, then the kernels that are missing"
else
  say "the first kernel will be there in $((1 + 5 / $(nproc))) minutes or so, downloads apart; then the rest is built"
fi
install_packages build
provide_parts nvrtc headers frontend "${more_nvrtc[@]}"
[[ ${#more_nvrtc[@]} == 0 || -n ${place_of_part[${more_nvrtc[0]}]} ]] || die 3 "NVRTC 12 could not be fetched"
note "packages and headers"

# cuDNN is large, and only the plan worker is built with it: fetch it while the compiler runs.
mkdir -p build
set -m # starts the fetch in its own process group, which the trap below kills
provide_parts cudnn >build/fetch_cudnn.log 2>&1 </dev/null &
fetching=$!
set +m
trap 'kill -- -"$fetching" 2>/dev/null' EXIT

say "building the release preset: the program first"
build_preset release OFF -- kiln kiln-worker || die 1 "the build failed"
note "kiln and its worker built"

status=0
warm() { # warm ARCHITECTURES
  say "$kiln warm --quick --arch $1"
  "$kiln" warm --quick --arch "$1" || status=$?
}
warm 7.5,8.6,9.0
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  warm native # a separate run: a device that this NVRTC does not support affects nothing else
fi
note "kernels warmed"

wait "$fetching"
provide_parts cudnn # prints where it is, or what does not work without it
say "building the library and the worker for cuDNN's plans"
build_preset release OFF || die 1 "the build failed"
note "library and plan worker built"

say "$kiln ls --limit 5"
"$kiln" ls --limit 5 || status=$?
say "$kiln stats"
"$kiln" stats || status=$?

printf '\n%s%5d s  all of it\n' "$report" $((SECONDS - began))
cat <<NEXT

What to try next, with $PWD/build/release/bin on PATH:
  kiln templates                               every kernel and its parameters
  kiln compile FILE.cu --arch 9.0              a kernel of yours, into the same cache
  kiln doctor                                  what is on this machine, and what to do about it
NEXT
exit $status
