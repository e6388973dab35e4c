# shellcheck shell=bash
# Shared by run.sh, test.sh and gpu-bundle.sh: Debian packages, the NVIDIA parts, building a preset.
# Sourced, never run. Exit codes: 2 wrong usage, 3 a missing part cannot be installed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
cd "$root" || exit 3
exec </dev/null # nothing here reads input; sudo asks on its own terminal

say() { printf '== %s\n' "$*"; }
warn() { printf '\n!! %s\n\n' "$*" >&2; }
die() { # die CODE MESSAGE...
  local code=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$code"
}

if [[ -n ${KILN_NO_TOOLKIT:-} && $KILN_NO_TOOLKIT != 0 ]]; then
  KILN_NO_TOOLKIT=1
  unset CUDA_HOME CUDA_PATH
else
  KILN_NO_TOOLKIT=0
fi
export KILN_NO_TOOLKIT

# ---- Debian packages -------------------------------------------------------------------------

# missing_packages GROUP...: prints the packages of these groups that are not installed.
missing_packages() {
  local wanted
  wanted=$(awk -v groups=" $* " '!/^#/ && NF && index(groups, " " $1 " ") {print $2}' \
    tools/packages.txt)
  # shellcheck disable=SC2086 # a list of names
  comm -23 <(sort <<<"$wanted") \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
      awk '$1 == "installed" {print $2}' | sort) | xargs
}

# Sets as_root to the prefix that runs a command as root; fails if there is no way to become root.
find_root() {
  as_root=()
  [[ $(id -u) == 0 ]] && return
  as_root=(sudo)
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 2 ]]; }
}

# install_packages GROUP...: installs the missing packages of these groups; calls apt-get only if there
# are some. If packages of group "optional" or "full" stay missing, it warns; for others the script ends.
install_packages() {
  local missing needed reason remedy group
  if ! command -v dpkg-query >/dev/null; then
    warn "This is no Debian: nothing is installed. tools/packages.txt lists what is needed."
    return
  fi
  missing=$(missing_packages "$@")
  [[ -z $missing ]] && return
  say "missing packages: $missing"
  remedy="apt-get update && apt-get install -y --no-install-recommends $missing"

  if ! command -v apt-get >/dev/null; then
    reason="there is no apt-get here"
  elif ! find_root; then
    reason="this user is not root and cannot use sudo"
  else
    say "installing them with apt-get"
    local get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q
      -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 -o Acquire::http::Timeout=30)
    # shellcheck disable=SC2086 # a list of names
    { "${get[@]}" update || true; } && "${get[@]}" install -y --no-install-recommends $missing
    reason="apt-get failed (is the package registry reachable?)"
  fi
  missing=$(missing_packages "$@")
  [[ -z $missing ]] && return
  for group; do
    needed=$([[ $group == optional || $group == full ]] || missing_packages "$group")
    [[ -z $needed ]] ||
      die 3 "$reason, and these packages are missing: $missing"$'\n'"Run as root: $remedy"
  done
  warn "$reason; going on without: $missing. To have them, run as root: $remedy"
}

# ---- NVIDIA parts ----------------------------------------------------------------------------

# Prints what does not work without a part.
part_is_for() {
  case $1 in
    headers) echo "the CUDA headers: needed to build" ;;
    nvrtc) echo "NVRTC: nothing can be compiled, tests that compile are skipped" ;;
    nvjitlink) echo "nvJitLink: nothing can be linked, tests that link are skipped" ;;
    cudnn) echo "cuDNN: no cuDNN attention, its tests are skipped" ;;
    frontend) echo "the cuDNN frontend's headers: no cuDNN attention, its tests are skipped" ;;
    nvrtc-12) echo "NVRTC 12: nothing is built for drivers of CUDA 12 and for Volta" ;;
    test-nvcc) echo "nvcc: no test reads what it writes" ;;
    test-cuobjdump) echo "cuobjdump: nothing is compared with it" ;;
    test-nvrtc-*) echo "the ${1#test-nvrtc-} NVRTC: no test runs with it" ;;
  esac
}

part_requirements() { # the part's lines of tools/wheels.txt
  awk -v part="$1" '/^# part /{on = ($3 == part)} on && !/^#/ && NF' tools/wheels.txt
}

part_size() { awk -v part="$1" '/^# part / && $3 == part {print $4, $5}' tools/wheels.txt; }

part_pins() { part_requirements "$1" | sha256sum | cut -c1-64; }

# Fills the table place_of_part: the path of each part, empty if it is missing.
declare -A place_of_part
find_parts() {
  local line found
  found=$(cmake -DKILN_NO_TOOLKIT="$KILN_NO_TOOLKIT" -P tools/cmake/NvidiaParts.cmake) ||
    die 3 "tools/cmake/NvidiaParts.cmake failed"
  while read -r line; do
    line=${line#-- }
    place_of_part[${line%%=*}]=${line#*=}
  done <<<"$found"
}

# parts_to_fetch PART...: prints the parts that are missing, or are in .deps with other pins than
# tools/wheels.txt has.
parts_to_fetch() {
  local part place pins
  for part; do
    place=${place_of_part[$part]}
    if [[ $place == "$deps"/* ]]; then
      read -r pins <"$deps/installed/$part" 2>/dev/null || pins=""
      [[ $pins == "$(part_pins "$part")" ]] || echo "$part"
    elif [[ -z $place ]]; then
      echo "$part"
    fi
  done | xargs
}

# Prints a python3 that has pip. If there is none, makes a venv, else installs Debian's.
find_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -m pip --version >/dev/null 2>&1 && echo "$python" && return
  done
  python3 -m venv "$deps/.pip" >/dev/null 2>&1 && echo "$deps/.pip/bin/python3" && return
  rm -rf "$deps/.pip"
  (install_packages wheels) >&2 && echo /usr/bin/python3
}

# fetch_part PART: downloads the part's wheels, checks their hashes, and puts it into .deps.
# Returns 1 if that failed, 2 if the registry did not answer.
fetch_part() {
  local part=$1 began=$SECONDS work arch
  arch=$(uname -m)
  work=$(mktemp -d "$deps/.fetch.XXXXXX") || return 1
  part_requirements "$part" >"$work/requirements.txt"
  say "fetching $part ($(part_size "$part"))"
  # Always the wheels of one Python version and platform, so that one set of hashes is enough.
  local platforms=()
  for glibc in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux_2_12 \
    manylinux2010; do
    platforms+=(--platform "${glibc}_$arch")
  done
  if ! "$python" -m pip --disable-pip-version-check --timeout 15 --retries 2 download --no-deps \
    --require-hashes --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 \
    --abi none "${platforms[@]}" --progress-bar off -d "$work" -r "$work/requirements.txt" \
    >"$work/log" 2>&1; then
    grep '^ERROR' "$work/log" >&2 || tail -n 5 "$work/log" >&2
    local status=1
    grep -qiE 'connection broken|timed out|Max retries' "$work/log" && status=2
    rm -rf "$work"
    return $status
  fi
  "$python" tools/unpack_wheels.py "$work" "$deps" "$part" "$(part_pins "$part")" || {
    rm -rf "$work"
    return 1
  }
  rm -rf "$work"
  say "fetched $part in $((SECONDS - began)) s"
}

fetch_parts() { # fetch_parts PART...: under the lock, after checking again what is missing
  local part lock python todo status
  if ! mkdir -p "$deps" 2>/dev/null || [[ ! -w $deps ]]; then
    warn "Cannot write $deps."
    return
  fi
  exec {lock}>"$deps/.lock"
  if ! flock -n "$lock"; then
    say "another set-up is at work in .deps: waiting for it, 20 minutes at most"
    flock -w 1200 "$lock" || die 3 "another set-up still holds $deps/.lock: end it, or wait for it"
  fi
  find_parts
  todo=$(parts_to_fetch "$@")
  if [[ -n $todo ]]; then
    rm -rf "$deps"/.fetch.* # left by a set-up that was killed
    say "NVIDIA parts that no installed toolkit has: $todo"
    if python=$(find_pip); then
      for part in $todo; do
        fetch_part "$part" && continue
        status=$?
        [[ $status == 2 ]] && warn "The package registry for wheels did not answer." && break
        warn "Fetching $part failed."
      done
    else
      warn "Wheels need a python3 with pip, and there is none."
    fi
    find_parts
  fi
  exec {lock}>&-
}

# provide_parts PART...: finds each part in an installed toolkit, else in .deps, else fetches it.
# Prints where each is, and which are missing. Only missing headers end the script.
missing_parts=""
say_missing_parts() { [[ -z $missing_parts ]] || warn "$missing_parts"; }
provide_parts() {
  local part lost=""
  find_parts
  [[ -z $(parts_to_fetch "$@") ]] || fetch_parts "$@"
  for part; do
    if [[ -n ${place_of_part[$part]} ]]; then
      say "$part: ${place_of_part[$part]}"
    else
      lost+=$'\n'"   $(part_is_for "$part")"
    fi
  done
  [[ -z $lost ]] && return
  lost="Neither in an installed toolkit nor fetched:$lost"$'\n'"   Set CUDA_HOME to a toolkit that has \
it, or run this again where the package registry for wheels can be reached."
  [[ -n ${place_of_part[headers]} ]] || die 3 "$lost"
  missing_parts=$lost
  say_missing_parts
}

# ---- Python, for the tests of its package ----------------------------------------------------

pip_install=(-m pip --disable-pip-version-check --timeout 15 --retries 2 install --no-deps --no-compile
  --require-hashes --only-binary=:all: --progress-bar off)

# add_stubs PYTHON PACKAGES: libraries in place of the CUDA libraries that the torch in PACKAGES links.
add_stubs() {
  "$1" tools/python/stub_libraries.py "$2" "$2/torch/lib" && PYTHONPATH=$2 "$1" -c 'import torch'
}

# Installs the packages of tools/python/requirements.txt into a virtual environment in .deps/python,
# and those of torch_requirements.txt and jax_requirements.txt. Returns 2 without torch or jax, whose tests
# are then skipped, and 1 if the rest failed.
fetch_python() {
  local python=$1 place=$deps/python log=$deps/.python.log began=$SECONDS
  local install=("$place/bin/python3" "${pip_install[@]}")
  rm -rf "$place"
  if ! { "$python" -m venv "$place" >"$log" 2>&1 &&
    "${install[@]}" -r tools/python/requirements.txt >>"$log" 2>&1; }; then
    grep '^ERROR' "$log" >&2 || tail -n 5 "$log" >&2
    rm -rf "$place"
    return 1
  fi
  local packages status=0
  packages=$("$place/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  if ! "${install[@]}" -r tools/python/torch_requirements.txt >>"$log" 2>&1; then
    warn "torch could not be fetched: the tests of Python that need it are skipped."
    status=2
  elif ! add_stubs "$place/bin/python3" "$packages" >>"$log" 2>&1; then
    warn "torch does not import: see $log"
    status=2
  fi
  if ! "${install[@]}" -r tools/python/jax_requirements.txt >>"$log" 2>&1; then
    warn "jax could not be fetched: the tests of Python that need it are skipped."
    status=2
  fi
  say "fetched the Python packages in $((SECONDS - began)) s"
  return $status
}

# Sets python_arguments, for CMake: with a Python that has the packages, or without.
# shellcheck disable=SC2034 # test.sh reads it
python_arguments=(-DKILN_PYTHON=OFF)
provide_python() {
  local stamp=$deps/installed/python pins installed="" lock python=$deps/python/bin/python3 python3
  pins=$(cat tools/python/{,torch_,jax_}requirements.txt tools/python/stub_libraries.py | sha256sum | cut -c1-64)
  mkdir -p "$deps/installed" 2>/dev/null && exec {lock}>"$deps/.lock" && flock -w 1200 "$lock" || return 0
  [[ ! -x $python ]] || read -r installed <"$stamp" 2>/dev/null || true
  if [[ $installed != "$pins" ]]; then
    say "fetching the Python packages of the tests (about 650 MB, most of it torch)"
    local status=1
    rm -f "$stamp"
    python3=$(find_pip) && {
      status=0
      fetch_python "$python3" || status=$?
    }
    case $status in
      0) echo "$pins" >"$stamp" ;;
      1)
        warn "The Python packages cannot be had here (they are for Python 3.11): no test of Python runs."
        python=""
        ;;
    esac
  fi
  exec {lock}>&-
  # shellcheck disable=SC2034
  [[ -z $python ]] || python_arguments=(-DKILN_PYTHON=ON "-DPython3_EXECUTABLE=$python")
}

# fetch_folder NAME FILE WHAT CHECK...: after provide_python; puts the packages of tools/python/FILE into
# .deps/NAME, for PYTHONPATH, and runs CHECK. Without python_arguments or WHAT returns 1.
fetch_folder() {
  local file=tools/python/$2 what=$3 place=$deps/$1 stamp=$deps/installed/$1 log=$deps/.$1.log
  local python=$deps/python/bin/python3 pins installed="" lock began=$SECONDS status=0
  shift 3
  [[ ${python_arguments[0]} == *=ON ]] || return 1
  pins=$(cat "$file" tools/python/stub_libraries.py | sha256sum | cut -c1-64)
  exec {lock}>"$deps/.lock" && flock -w 1200 "$lock" || return 1
  [[ ! -d $place ]] || read -r installed <"$stamp" 2>/dev/null || true
  if [[ $installed != "$pins" ]]; then
    say "fetching $what"
    rm -rf "$place" "$stamp"
    if "$python" "${pip_install[@]}" --target "$place" -r "$file" >"$log" 2>&1 && "$@" >>"$log" 2>&1; then
      echo "$pins" >"$stamp"
      say "fetched it in $((SECONDS - began)) s"
    else
      rm -rf "$place"
      warn "There cannot be had, or does not import (see $log): $what. Its tests are skipped."
      status=1
    fi
  fi
  exec {lock}>&-
  return $status
}

# provide_module NAME FILE WHAT MODULE: the same, and Python imports MODULE from there.
provide_module() {
  fetch_folder "$1" "$2" "$3" env PYTHONPATH="$deps/$1" "$deps/python/bin/python3" -c "import $4" || return 0
}

# provide_program PROGRAM PACKAGE CHECK...: unpacks Debian's package into .deps, where no PROGRAM is installed. nginx
# would start as a service, and other packages than Debian's have kubectl, too.
provide_program() {
  local program=$1 package=$2 place=$deps/$1 log=$deps/.$1.log
  shift 2
  [[ -n $(PATH=$PATH:/usr/sbin:$place/usr/sbin:$place/usr/bin type -P "$program") ]] && return
  rm -rf "$place"
  if ! { command -v apt-get && command -v dpkg-deb && mkdir -p "$place" && cd "$place" &&
    apt-get -q download "$package" && dpkg-deb -x "$package"_*.deb . && "$@"; } >"$log" 2>&1; then
    warn "$program cannot be had (see $log): the tests with it are skipped."
    rm -rf "$place"                     # the next run tries again
  fi
  cd "$root" || exit 3
}

# provide_for_tests MODE: the parts of the tests that Python and servers run; with --full, more of them.
provide_for_tests() {
  provide_python
  # Whose programs run with kiln.compat and beneath kiln run.
  provide_module frameworks frameworks_requirements.txt \
    "the frameworks whose programs the tests run (about 77 MB, most of it CuPy)" einops
  # For tests/python/test_triton.py, which compiles without a GPU.
  provide_module triton triton_requirements.txt "Triton for the tests (about 286 MB)" triton
  provide_program nginx nginx usr/sbin/nginx -v
  provide_program kubectl kubernetes-client usr/bin/kubectl version --client
  provide_module kubernetes kubernetes_requirements.txt "the schemas of Kubernetes for the tests (about 23 MB)" \
    kubernetes_validate
  [[ $1 == --full ]] || return 0
  # Without them the tests run with the newest torch alone, and no test has an S3 server.
  if fetch_folder oldest-torch oldest_torch.txt "the oldest torch for the tests of Python (about 770 MB)" \
    add_stubs "$deps/python/bin/python3" "$deps/oldest-torch"; then
    python_arguments+=("-DKILN_OLDEST_TORCH=$deps/oldest-torch")
  fi
  provide_module oldest-triton oldest_triton.txt "the oldest Triton for the tests (about 209 MB)" triton
  provide_module s3 s3_requirements.txt "an S3 server for the tests (about 32 MB)" moto.server
}

# ---- Building --------------------------------------------------------------------------------

configure_arguments=() # for every preset
# build_preset PRESET TESTS [PREFIX...] [-- TARGET...]: configures and builds; TESTS is ON or OFF. PREFIX
# is a command that runs the build. With targets, builds only these.
build_preset() {
  local preset=$1 tests=$2 launcher="" prefix=()
  shift 2
  while (($#)) && [[ $1 != -- ]]; do
    prefix+=("$1")
    shift
  done
  (($#)) && set -- --target "${@:2}"
  if command -v ccache >/dev/null; then
    launcher=ccache
    # Without these ccache does not cache files that use a precompiled header, as tests do.
    export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
    # With these, a clone in any folder finds what another clone has compiled.
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
    local cache_dir
    cache_dir=$(ccache --get-config cache_dir)
    if ! mkdir -p "$cache_dir" 2>/dev/null || [[ ! -w $cache_dir ]]; then # no writable home folder
      export CCACHE_DIR=$root/.cache/ccache
    fi
  fi
  cmake --preset "$preset" "${configure_arguments[@]}" -DKILN_TESTS="$tests" -DKILN_NO_TOOLKIT="$KILN_NO_TOOLKIT" \
    -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" &&
    "${prefix[@]}" cmake --build --preset "$preset" "$@"
}
