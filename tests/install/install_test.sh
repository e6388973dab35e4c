#!/usr/bin/env bash
# Installs a build, moves it elsewhere, and looks at what is there as those do who use it:
# the files, the names that the library shows, every header alone, the example in C, and one
# program built with CMake and with pkg-config, which compiles kernels and finds them again, on the
# simulated driver. Arguments: see CMakeLists.txt. Exit code 77: no NVRTC, so nothing ran.
set -euo pipefail

if (($# != 6)); then
  echo "usage: install_test.sh BUILD INSTALLED_FILES SIMULATED_DRIVER CXX CC CUDA_HEADERS" >&2
  exit 2
fi
build=$1 installed_files=$2 driver=$3 cxx=$4 cc=$5 cuda_headers=$6
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
prefix=$work/moved/here
folder_of() { sed -n "s|/$1\$||p" "$installed_files"; } # folder_of FILE: in the prefix
includedir=$prefix/$(folder_of kiln/kiln.h)
libdir=$prefix/$(folder_of libkiln.so)
worker=$prefix/$(folder_of kiln-worker)/kiln-worker

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
# must SECONDS COMMAND...: runs it; says what it printed where it fails or is too slow.
must() {
  local limit=$1 status=0
  shift
  timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
  ((status != 0)) || return 0
  cat "$log" >&2
  fail "exit status $status (124: it took more than $limit s) of: $*"
}

say "install into one place, move to another"
must 60 cmake --install "$build" --prefix "$work/first"
mkdir "$work/moved"
mv "$work/first" "$prefix"
diff <(sort "$installed_files") <(cd "$prefix" && find . ! -type d -printf '%P\n' | sort) >&2 ||
  fail "'<' should have been installed and was not, '>' should not"
if grep -rIl -e "$work" -e "$build" "$prefix" >"$log"; then
  fail "these know where they were built or installed: $(xargs <"$log")"
fi

say "the names that the library shows"
library=$libdir/libkiln.so
nm -DC --defined-only "$library" | sed -n 's/^[0-9a-f]* //p' >"$work/names"
# Which members that headers define it has besides (W, V, u) is up to the compiler.
grep '^T ' "$work/names" | sed 's/\(@@KILN_CXX\)_.*/\1/' | LC_ALL=C sort -u | diff "$here/exported_symbols.txt" - >"$log" ||
  fail "'<' is not there any more, '>' is new: $(<"$log")"
if grep -vE '^T |^[WVu] kiln::(FileBuild|FileCache|Kernel|Request|Service)::' "$work/names" >"$log"; then
  fail "it shows more than its public names: $(<"$log")"
fi
if nm -DC --undefined-only "$library" | grep -E '(kiln::| (cu[A-Z]|cudnn|nvrtc))' >"$log"; then
  fail "it leaves undefined what nothing else has: $(<"$log")"
fi
if readelf -d "$library" | grep -E 'R(UN)?PATH|NEEDED.*(kiln|cuda|nvrtc|cudnn)' >"$log"; then
  fail "it is bound to what is not the system's: $(<"$log")"
fi

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/python/kiln/_version.py")
for says in "$("$prefix/bin/kiln" --version)" "kiln $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --modversion kiln)"; do
  [[ $says == "kiln $version" ]] || fail "the version is $version, and not what '$says' says"
done

say "every header alone"
flags=(-std=c++20 -Wall -Wextra -Wpedantic -Werror -I "$includedir")
for header in "$includedir"/kiln/*.h; do
  header=kiln/${header##*/}
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" >"$work/alone.cc"
  must 60 "$cxx" "${flags[@]}" -fsyntax-only "$work/alone.cc"
done
echo '#include <kiln/kiln.h>' >"$work/all.cc"
must 60 "$cxx" "${flags[@]}" -M "$work/all.cc"
if grep -oEi '[^ ]*/(cuda|nvrtc|cudnn|fmt|spdlog|sqlite)[^ ]*' "$log" >"$work/foreign"; then
  fail "the public headers include $(xargs <"$work/foreign")"
fi

say "a program built with CMake, and as the guide says with pkg-config"
cp -r "$here/consumer" "$work/consumer"
must 60 cmake -S "$work/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror"
must 120 cmake --build "$work/cmake"
line=$(grep '^g++ -std=c++20 app.cc ' "$root/docs/guide.md") || fail "the guide has no line 'g++ -std=c++20 app.cc …'"
(cd "$work/consumer" && PKG_CONFIG_PATH=$libdir/pkgconfig must 120 bash -ec "$line")

say "the example in C, as strict as can be, and with CMake where there is no C++"
example=$prefix/$(folder_of from_c.c)/from_c.c
must 60 cmake -S "$here/consumer_in_c" -B "$work/cmake_in_c" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_DISABLE_FIND_PACKAGE_tl-expected=ON -DEXAMPLE="$example"
must 60 cmake --build "$work/cmake_in_c"
must 60 "$cc" -std=c11 -Wall -Wextra -pedantic -Werror "$example" \
  $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs kiln) -o "$work/from_c"

say "a library that carries its kernels"
# The toolkit has such a libcuda.so to link with; a machine of the tests may not.
mkdir "$work/stubs"
nm -D --defined-only "$driver" | sed -n 's/.* T \(cu[A-Z].*\)/void \1(void) {}/p' |
  "$cc" -shared -x c -Wl,-soname,libcuda.so.1 -o "$work/stubs/libcuda.so" -
must 60 cmake -S "$prefix/$(folder_of from_nvcc/app.cc)/from_nvcc" -B "$work/from_nvcc" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_INCLUDE_PATH="$cuda_headers" -DCMAKE_LIBRARY_PATH="$work/stubs" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Werror"
must 120 cmake --build "$work/from_nvcc"

say "each compiles, then finds what it compiled"
nvrtc=${KILN_NVRTC:-$(cmake -P "$root/tools/cmake/NvidiaParts.cmake" 2>&1 |
  sed -n 's/^-- nvrtc=//p')}
if [[ -z $nvrtc ]]; then
  echo "SKIPPED: no NVRTC here, so the programs were built and not run" >&2
  exit 77
fi
# clean CACHE COMMAND...: runs it with an environment of its own.
clean() {
  local cache=$1
  shift
  must 60 env -i PATH="$PATH" HOME="$work/home" KILN_CACHE_DIR="$work/$cache" \
    KILN_DRIVER="$driver" KILN_SIMULATED_DEVICES=7.5,8.6 KILN_NVRTC="$nvrtc" KILN_CUDNN="${KILN_CUDNN:-}" \
    LD_LIBRARY_PATH="$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}
# prints OUTCOME CACHE PROGRAM: it says that of both devices, and nothing else.
prints() {
  local outcome=$1
  clean "$2" "$3"
  for device in 0 1; do
    printf "device $device: %s\n" "$outcome" loaded launched
  done | diff - "$log" >&2 || fail "'<' is what $3 should have printed"
}
for program in cmake/app consumer/app; do
  prints compiled "${program%/app}" "$work/$program"
  prints hit "${program%/app}" "$work/$program"
done

clean c "$work/from_c"
[[ $(grep -c '^device [01], a .*: launched$' "$log") == 2 ]] || fail "the example in C: $(<"$log")"

say "the example with GoogleTest, whose kernel runs here, and the same in C"
kit=$libdir/kiln/testing
must 120 "$cxx" -std=c++20 -Wall -Wextra -Werror -I "$kit" "$prefix/$(folder_of own_kernel_test.cc)/own_kernel_test.cc" \
  $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs kiln) -lgtest -lgtest_main -o "$work/own_kernel_test"
clean own "$work/own_kernel_test"
grep -q '^\[  PASSED  \] 1 test' "$log" || fail "the example with GoogleTest: $(<"$log")"
printf '#include <simulated_device.h>\nint main(void) { return kiln_use_simulated_device("9.0") || *kiln_take_report(); }\n' \
  >"$work/kit.c"
must 60 "$cc" -std=gnu11 -Wall -Wextra -Werror -I "$kit" "$work/kit.c" -o "$work/kit"
clean own "$work/kit"

say "the example for CI, with the simulated driver that is installed"
(cd "$work" && clean ci "$prefix/$(folder_of ci.sh)/ci.sh" "$prefix" "$work/cmake/app")
[[ $(grep -c '^device [01]: launched$' "$log") == 4 ]] || fail "twice on two devices: $(<"$log")"
grep -q '^2 requested: 2 hits, 0 compiled' "$log" || fail "warm should have found both: $(<"$log")"

say "the library that carries its kernels, on a simulated device; and its job, which builds nothing"
clean carried ctest --test-dir "$work/from_nvcc" --output-on-failure
grep -q '100% tests passed, 0 tests failed out of 1' "$log" || fail "the example's own test: $(<"$log")"
mkdir "$work/nodes"
(cd "$work/nodes" && clean carried "$prefix/$(folder_of from_nvcc/pack.sh)/from_nvcc/pack.sh" "$prefix" "$work/from_nvcc/app")
[[ $(grep -c '^2000 2000$' "$log") == 3 ]] || fail "it should compute for 8.0, 9.0 and the job: $(<"$log")"
for says in '^2 requested: 2 hits, 0 compiled' '^1 found (1 from seed)' 'kernels: 1 from seed'; do
  grep -q "$says" "$log" || fail "'$says' should be in: $(<"$log")"
done

say "the installed program shares the cache, and finds the worker"
clean cmake "$prefix/bin/kiln" warm --template 'scaled_softmax_fwd:dtype=bf16,max_cols=128' \
  --arch 7.5,8.6,9.0
grep -q '2 hits, 1 compiled' "$log" || fail "two should be hits and one be compiled: $(<"$log")"

if grep -q /kiln-plan-worker "$installed_files"; then
  say "it finds the plan worker, and that the driver beside it"
  if (clean plans "$prefix/bin/kiln" attention warm --profile h200 \
    --pass fwd --dtype bf16 --batch 1 --heads 2 --sq 128 --skv 128 --dqk 64 --mask none) \
    2>"$work/said"; then
    grep -q '1 compiled' "$log" || fail "a plan should have been built: $(<"$log")"
  else
    grep -q 'no libcudnn' "$work/said" || fail "no plan was built: $(<"$work/said")"
    echo "no cuDNN here, so no plan was built"
  fi
fi

say "without the worker: hits as ever; else it is said what is missing, and where"
mv "$worker" "$work/"
prints hit cmake "$work/cmake/app"
if (clean empty "$work/cmake/app") 2>"$work/said"; then
  fail "nothing compiles without a worker"
fi
grep -q "no kiln-worker (looked at .*$worker" "$work/said" ||
  fail "the message does not say where the worker should be: $(<"$work/said")"
say "passed in $SECONDS s"
