#!/usr/bin/env bash
# kiln_embed(), in a project whose folder has a blank in its name: texts with every byte arrive as they are, a change
# of a file or of the list arrives, and a wrong call is refused in words. Arguments: see CMakeLists.txt.
# shellcheck disable=SC1003,SC2016 # texts that arrive as they are
set -euo pipefail

if (($# != 1)); then
  echo "usage: embed_test.sh CXX" >&2
  exit 2
fi
cxx=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-embed.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
project="$work/a project"
cp -r "$here/embed" "$project"
cd "$project"

fail() {
  cat "$log"
  printf 'FAILED: %s\n' "$*"
  exit 1
} >&2
configure() { # configure SOURCE BUILD
  cmake -S "$1" -B "$2" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Wconversion -Werror" \
    -DKILN_EMBED="$root/tools/cmake/kilnEmbed.cmake" -DKILN_HEADERS="$root/src" >"$log" 2>&1
}
# builds: the program, and the same folder that it unpacks as `expected` is.
builds() {
  rm -rf unpacked
  { cmake --build build && build/unpack unpacked; } >"$log" 2>&1 || fail "it builds and runs"
  diff -r expected unpacked >"$log" || fail "what the program has is not what is in the files"
}

mkdir -p kernels/fwd kernels/detail expected/fwd expected/headers/detail
{
  printf '#include "own.h"\r\n)kiln" )" R"( ??/ \\ \\n %%s $<1:x> ${work} @work@ ; [[ ]] \0 \377 \200\n'
  head -c 300000 /dev/urandom
} >kernels/big.cu
: >kernels/empty.cu
printf '#include "../detail/tile.h"\n#include "detail/tile.h"\nno newline at the end' >'kernels/fwd/odd name-1.cu'
printf '\xef\xbb\xbf// a byte order mark, \xe9 of Latin-1, and a form feed\f\r\n' >kernels/own.h
printf '#include "lane.h"\n# include "none.h"\n' >kernels/detail/tile.h
printf ';;"\\' >kernels/detail/lane.h
for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
  for j in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do printf '%b' "\\x$i$j"; done
done >kernels/3d.cu
cp -r kernels/{big.cu,empty.cu,3d.cu,fwd} expected
cp -r kernels/{own.h,detail} expected/headers
cp kernels/3d.cu expected/headers/detail/made.h
cat >calls.cmake <<'CALLS'
set(made ${CMAKE_CURRENT_BINARY_DIR}/made)
add_custom_command(OUTPUT ${made}/detail/made.h COMMAND ${CMAKE_COMMAND} -E copy
                   ${CMAKE_CURRENT_SOURCE_DIR}/kernels/3d.cu ${made}/detail/made.h)
kiln_embed(TARGET unpack SOURCES kernels/big.cu kernels/empty.cu "kernels/fwd/odd name-1.cu" BASE . kernels ${made}
           HEADERS kernels/own.h kernels/detail/tile.h ${CMAKE_CURRENT_SOURCE_DIR}/kernels/detail/lane.h
                   ${made}/detail/made.h)
kiln_embed(TARGET unpack SOURCES kernels/3d.cu BASE other kernels NAMESPACE own::space NAME made)
CALLS

echo "== every byte arrives"
configure . build || fail "it configures"
builds
touch kernels/*/*
cmake --build build >"$log" 2>&1 || fail "it builds again"
grep -o '[^/]*/[^/]*: warning: .*' "$log" | sort | diff - <(
  echo 'detail/tile.h: warning: kiln_embed: #include "lane.h" finds no header: write "detail/lane.h", its name below BASE'
  echo 'fwd/odd name-1.cu: warning: kiln_embed: #include "../detail/tile.h" finds no header: write "detail/tile.h", its name below BASE'
) || fail "'<' is the warning of includes that NVRTC does not find, '>' should be"

echo "== a change arrives, and without one nothing is done"
head -c 20000 /dev/urandom >kernels/own.h
cp kernels/own.h expected/headers
builds
cmake --build build >"$log" 2>&1 || fail "it builds once more"
! grep -E 'Embedding|Building' "$log" || fail "nothing had changed"
sed -i 's|kernels/own.h kernels/detail/tile.h|kernels/own.h|' calls.cmake
rm expected/headers/detail/tile.h
builds

echo "== wrong calls"
mkdir -p below/folder
touch kernels/a-b.cu kernels/a_b.cu other.h
echo 'add_library(elsewhere STATIC ../unpack.cc)' >below/CMakeLists.txt
# refused MESSAGE CALL: where words are apart in MESSAGE, there may be a line's end.
refused() {
  printf '%s\n' "$2" >calls.cmake
  ! configure . build || fail "it should not configure: $2"
  tr -s '\n ' '  ' <"$log" | grep -q "kiln_embed: $1" || fail "'$1' should be said of $2"
}
usage='TARGET and SOURCES are needed; not understood'
refused "$usage: ''" 'kiln_embed(SOURCES kernels/big.cu)'
refused "$usage: ''" 'kiln_embed(TARGET unpack)'
refused "$usage: 'kernels/big.cu'" 'kiln_embed(kernels/big.cu TARGET unpack SOURCES kernels/3d.cu)'
refused "$usage: 'NAME'" 'kiln_embed(TARGET unpack SOURCES kernels/big.cu NAME)'
refused 'the target none is no target' 'kiln_embed(TARGET none SOURCES kernels/big.cu)'
for made in 'add_library(t INTERFACE)' 'add_library(t ALIAS empty)' 'add_library(t STATIC IMPORTED)' 'add_custom_target(t)'; do
  refused 'the target t compiles no source' "add_library(empty STATIC unpack.cc)
    $made
    kiln_embed(TARGET t SOURCES kernels/big.cu)"
done
refused "the target elsewhere is made in $project/below: call kiln_embed there" \
  'add_subdirectory(below)
  kiln_embed(TARGET elsewhere SOURCES kernels/big.cu)'
refused "there is no file $project/kernels/none.cu" 'kiln_embed(TARGET unpack SOURCES kernels/none.cu)'
refused "there is no file $project/none.h" 'kiln_embed(TARGET unpack SOURCES kernels/big.cu HEADERS none.h)'
refused "there is no file $project/kernels/detail" 'kiln_embed(TARGET unpack SOURCES kernels/big.cu HEADERS kernels/detail)'
refused "$project/other.h is outside of BASE (kernels, below)" \
  'kiln_embed(TARGET unpack SOURCES kernels/big.cu HEADERS other.h BASE kernels below)'
refused "$project/kernels/big.cu is outside of BASE (kernel)" 'kiln_embed(TARGET unpack SOURCES kernels/big.cu BASE kernel)'
refused 'two of SOURCES have the name kernels_a_b_cu; the second is kernels/a_b.cu' \
  'kiln_embed(TARGET unpack SOURCES kernels/a-b.cu kernels/a_b.cu)'
refused 'two of HEADERS have the name own.h; the second is kernels/../kernels/own.h' \
  'kiln_embed(TARGET unpack SOURCES kernels/big.cu HEADERS kernels/own.h kernels/../kernels/own.h BASE kernels)'
refused "'a b::kernels', of NAMESPACE and NAME" 'kiln_embed(TARGET unpack SOURCES kernels/big.cu NAMESPACE "a b")'
refused "'unpack::a-b', of NAMESPACE and NAME" 'kiln_embed(TARGET unpack SOURCES kernels/big.cu NAME a-b)'
refused 'the target unpack has a kernels.h of an earlier call' \
  'kiln_embed(TARGET unpack SOURCES kernels/big.cu)
  kiln_embed(TARGET unpack SOURCES kernels/3d.cu)'
sed -i 's/LANGUAGES CXX/LANGUAGES NONE/' CMakeLists.txt
rm -r build
refused 'the target t cannot compile C++' 'add_library(t STATIC unpack.cc)
  kiln_embed(TARGET t SOURCES kernels/big.cu)'
echo "== passed in $SECONDS s"
