#!/usr/bin/env bash
# Packs the tests for real devices to run on another machine: see --help.
set -uo pipefail

usage() {
  cat <<'HELP'
usage: tools/gpu-bundle.sh [--build DIR] [--no-nvrtc] [--python VERSION] [FOLDER | FILE.tar.zst | FILE.tar.gz]

Builds the tests for real devices in the release preset and packs them with everything they need.
They run on a machine with a GPU and without network, packages or toolkit: unpack the bundle there
and start its run.sh. The default output is build/kiln-gpu-bundle.tar.zst; a .tar.gz is larger,
and for a machine without zstd. An output folder must be new or empty; a file is replaced.

The bundle has gpu_test, gpu_images_test, gpu_ptx_test, kiln, kiln-worker, kiln-bench-library, libkiln.so,
the simulated driver, every shared library that they load except glibc's, and NVRTC; if it is built, also
kiln-plan-worker with its driver. Plans then need only cuDNN itself: run.sh uses the one on the other
machine, PyTorch's for example (run.sh --help). The other machine needs Linux on this architecture,
bash, a glibc no older than here, and the driver. If libkiln_ffi.so is built, the bundle has the
package for Python with its bench and the cases of its tests, too, for a python3 of the same version
as the build's, or of VERSION; run.sh compares them with torch where that python3 has it.

  --build DIR   pack the programs in DIR, and build nothing
  --no-nvrtc    leave NVRTC out, for machines that have one; it is most of the size
  --python VERSION
                the other machine's python3, such as 3.12: its tvm-ffi is fetched

Environment:
  KILN_NVRTC    the NVRTC library to pack, instead of the one that the build uses

Exit codes: 0 done, 1 a step failed, 2 wrong usage, 3 something is missing; the message names it.
HELP
}

wrong() {
  echo "gpu-bundle.sh: $*" >&2
  exit 2
}

build=""
with_nvrtc=1
python_version=""
output=""
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --build)
      [[ -n ${2:-} ]] || wrong "--build takes a folder."
      [[ -d $2 ]] || wrong "there is no folder $2."
      build=$(realpath -- "$2")
      shift
      ;;
    --no-nvrtc) with_nvrtc=0 ;;
    --python)
      [[ ${2:-} =~ ^3\.[0-9]+$ ]] || wrong "--python takes a version such as 3.12, not '${2:-}'."
      python_version=$2
      shift
      ;;
    -*) wrong "unknown option '$1'; see --help." ;;
    *)
      [[ -z $output ]] || wrong "one folder or file, not both '$output' and '$1'."
      output=$(realpath -m -- "$1")
      ;;
  esac
  shift
done

. "$(dirname "$0")/setup.sh"

output=${output:-$root/build/kiln-gpu-bundle.tar.zst}
compress=() # empty: the output is a folder
case $output in
  *.tar.zst)
    compress=(zstd -q -T0 -12 --long=27)
    command -v zstd >/dev/null || die 3 "zstd is not installed: apt-get install zstd, or name a .tar.gz"
    ;;
  *.tar.gz) compress=(gzip -9) ;;
  *.tar | *.gz | *.tgz | *.xz | *.zip | *.zst) wrong "an archive is a .tar.zst or a .tar.gz, not '$output'." ;;
  *)
    [[ ! -e $output || -d $output ]] || wrong "$output is a file, and neither a .tar.zst nor a .tar.gz."
    [[ -z $(ls -A -- "$output" 2>/dev/null) ]] || wrong "the folder $output is not empty."
    ;;
esac
((!${#compress[@]})) || [[ ! -d $output ]] || wrong "$output is a folder."

programs=(gpu_test gpu_images_test gpu_ptx_test kiln kiln-worker kiln-bench-library)
if [[ -z $build ]]; then
  install_packages build test
  provide_parts nvrtc headers cudnn frontend
  provide_python
  configure_arguments=("${python_arguments[@]}")
  targets=("${programs[@]}" kiln-simulated-driver)
  [[ ${python_arguments[0]} != *=ON ]] || targets+=(kiln_ffi)
  build_preset release ON -- "${targets[@]}" || die 1 "the build failed"
  build=$root/build/release
  for part in kiln-plan-worker kiln_jax; do
    ! grep -qs "$part" "$build/build.ninja" || build_preset release ON -- "$part" ||
      die 1 "the build of $part failed"
  done
fi
for program in "${programs[@]}"; do
  [[ $program == kiln-bench-library || -x $build/bin/$program ]] ||
    die 3 "$build/bin/$program is not built: build the target $program there"
done

mkdir -p "$(dirname "$output")" || die 1 "cannot create $(dirname "$output")"
work=$(mktemp -d "$(dirname "$output")/.kiln-gpu-bundle.XXXXXX") ||
  die 1 "cannot write to $(dirname "$output")"
trap 'rm -rf "$work"' EXIT
bundle=$work/kiln-gpu-bundle
mkdir -p "$bundle/bin" "$bundle/lib" || die 1 "cannot write to $work"

# ---- Programs and libraries ------------------------------------------------------------------

for program in "${programs[@]}"; do
  if [[ -x $build/bin/$program ]]; then
    cp -- "$build/bin/$program" "$bundle/bin/" || die 1 "copying $program failed"
  else
    say "$program is not built there: left out"
  fi
done
# They lie beside kiln-worker.
[[ ! -d $build/bin/standard_headers ]] || cp -r -- "$build/bin/standard_headers" "$bundle/bin/" ||
  die 1 "copying the standard headers failed"
# kiln finds kiln-plan-worker beside itself, and the worker finds its driver the same way.
if [[ -x $build/bin/kiln-plan-worker ]]; then
  cp -- "$build"/bin/{kiln-plan-worker,kiln-no-device-driver.so} "$bundle/bin/" ||
    die 1 "copying kiln-plan-worker failed"
else
  say "kiln-plan-worker is not built there: left out"
fi
cp -P -- "$build"/lib/libkiln.so* "$build/lib/libkiln-simulated-driver.so" "$bundle/lib/" ||
  die 1 "copying libkiln.so and the simulated driver failed"
install -m 755 tools/gpu-run.sh "$bundle/run.sh" || die 1 "copying run.sh failed"

# The package, the tests of it that need no pytest, and tvm-ffi, which it imports.
copy_python() {
  local python
  python=$(sed -n 's/^_Python3_EXECUTABLE:INTERNAL=//p' "$build/CMakeCache.txt") &&
    mkdir -p "$bundle/python" "$bundle/tests/"{bench,gpu,python} &&
    cp -- "$build/lib/libkiln_ffi.so" "$bundle/lib/" &&
    cp -r -- python/kiln "$bundle/python/" &&
    cp -- tests/bench/*.py "$bundle/tests/bench/" &&
    cp -- tests/gpu/*.py "$bundle/tests/gpu/" &&
    cp -- tests/python/{corpus_cases,jax_cases,ops_cases,ops_device,simulated}.py "$bundle/tests/python/" &&
    { [[ ! -e $build/lib/libkiln_jax.so ]] || cp -- "$build/lib/libkiln_jax.so" "$bundle/lib/"; } &&
    "$python" - "$bundle/python" <<'COPY'
import shutil, sys, tvm_ffi, typing_extensions
of_builds = shutil.ignore_patterns("include", "src", "3rdparty", "cython", "share", "__pycache__")
shutil.copytree(tvm_ffi.__path__[0], sys.argv[1] + "/tvm_ffi", ignore=of_builds)
shutil.copy(typing_extensions.__file__, sys.argv[1])
COPY
}
# Puts the tvm-ffi of another Python into the place of the one that the build uses.
fetch_tvm_ffi() {
  local python version wheels=$work/wheels platforms=()
  python=$(find_pip) || return
  version=$(sed -n 's/^apache-tvm-ffi==\([^ ]*\).*/\1/p' tools/python/requirements.txt)
  for glibc in manylinux_2_28 manylinux_2_24 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${glibc}_$(uname -m)")
  done
  "$python" -m pip -q --disable-pip-version-check download --no-deps --only-binary=:all: \
    --implementation cp --python-version "$python_version" "${platforms[@]}" -d "$wheels" \
    "apache-tvm-ffi==$version" &&
    rm -rf "$bundle/python/tvm_ffi" &&
    "$python" -m zipfile -e "$wheels"/apache_tvm_ffi-*.whl "$wheels/unpacked" &&
    mv "$wheels/unpacked/tvm_ffi" "$bundle/python/" &&
    (cd "$bundle/python/tvm_ffi" && rm -rf include src 3rdparty cython share)
}

if [[ -e $build/lib/libkiln_ffi.so ]]; then
  copy_python || die 1 "copying the package for Python failed"
  [[ -z $python_version ]] || fetch_tvm_ffi || die 1 "fetching tvm-ffi for Python $python_version failed"
  find "$bundle/python" -name __pycache__ -prune -exec rm -rf {} +
else
  say "libkiln_ffi.so is not built there: nothing of Python is packed"
fi

# The other machine uses its own glibc.
is_of_glibc() {
  case $1 in
    ld-linux* | linux-vdso* | libc.so.* | libm.so.* | libmvec.so.* | libdl.so.* | libpthread.so.* | \
      librt.so.* | libutil.so.* | libresolv.so.* | libanl.so.* | libnss_*) return 0 ;;
  esac
  return 1
}

mapfile -t programs < <(find "$bundle/bin" -maxdepth 1 -type f)
needed=$(LD_LIBRARY_PATH=$bundle/lib:$bundle/python/tvm_ffi/lib ldd "${programs[@]}" "$bundle"/lib/*.so) || die 1 "ldd failed"
lost=$(awk '/=> not found/ {print $1}' <<<"$needed" | sort -u | xargs)
[[ -z $lost ]] || die 3 "not on this machine: $lost"
while read -r name path; do
  is_of_glibc "$name" || [[ $path == "$bundle"/* ]] ||
    cp -L -- "$path" "$bundle/lib/$name" || die 1 "copying $path failed"
done < <(awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' <<<"$needed" | sort -u)

# ---- NVRTC -----------------------------------------------------------------------------------

find_nvrtc() { # prints the library; if there are several, the newest
  if [[ -n ${KILN_NVRTC:-} ]]; then
    realpath -e -- "$KILN_NVRTC"
    return
  fi
  find_parts
  local place=${place_of_part[nvrtc]}
  [[ -n $place ]] &&
    find -L "$place" -maxdepth 4 -name 'libnvrtc.so.[0-9]*' -type f 2>/dev/null | sort -V | tail -n 1 |
    grep .
}

if ((with_nvrtc)); then
  nvrtc=$(find_nvrtc) || die 3 "no NVRTC found: set KILN_NVRTC or CUDA_HOME, or give --no-nvrtc"
  folder=$(dirname "$nvrtc")
  say "nvrtc: $nvrtc"
  # Copies symbolic links as links: NVRTC looks for its builtins by name, beside itself.
  cp -P -- "$folder"/libnvrtc.so.[0-9]* "$folder"/libnvrtc-builtins.so.[0-9]* "$bundle/lib/" ||
    die 1 "copying NVRTC from $folder failed"
  ln -sf "$(basename "$nvrtc")" "$bundle/lib/nvrtc" || die 1 "cannot write to $bundle"
fi

# ---- The result ------------------------------------------------------------------------------

mib() { echo $((($1 + 1048575) / 1048576)); }
unpacked=$(mib "$(du -sb "$bundle" | cut -f1)")
if ((${#compress[@]})); then
  say "compressing $unpacked MiB"
  tar -C "$work" --owner=0 --group=0 -cf - kiln-gpu-bundle |
    "${compress[@]}" >"$work/packed" || die 1 "packing failed"
  mv -f -- "$work/packed" "$output" || die 1 "cannot write $output"
  say "$output: $(mib "$(stat -c %s "$output")") MiB, unpacked $unpacked MiB"
  say "there: tar -xf $(basename "$output") && kiln-gpu-bundle/run.sh"
else
  mv -T -- "$bundle" "$output" || die 1 "cannot write $output" # replaces an empty folder
  say "$output: $unpacked MiB; $output/run.sh runs it"
fi
