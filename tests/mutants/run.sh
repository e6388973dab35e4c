#!/usr/bin/env bash
# Puts known bugs back in, one at a time, and shows that the tests catch each: see --help.
set -uo pipefail

usage() {
  cat <<'HELP'
usage: tests/mutants/run.sh [--work FOLDER] [MUTANT...] [-- cmake arguments]
       tests/mutants/run.sh --check BUILD
       tests/mutants/run.sh --list

Copies the project's files into FOLDER, builds there the test programs that are needed, and lets
the tests that the mutants name pass once without any. Then, for each mutant: puts it in, builds,
runs the tests that it names, and takes it out again. Each of them has to fail, crash or hang.
What the compiler has to catch is compiled alone, file by file, first without any mutant.
Closes with a table. Without names, all mutants; a name may be shortened to its beginning, or to
its number.

  --work FOLDER   default: build/mutants. A second run goes on with what is built there, also one
                  after an interruption.
  --check BUILD   builds nothing: does each patch apply, do the programs that are there have the
                  tests that are named, and does the submission tier run them?
  --list          names and meanings

A mutant is a file NN-name.patch beside this script: a line that says what it breaks, then
  Caught-by: PROGRAM TEST     a test that has to fail, as its program calls it; one line for each
  Does-not-compile: FILE      a file in which the compiler has to find an error; one line for each
  Limit: SECONDS s            for its tests, where a hang is what they show (default 120)
then the patch, of paths from the root, that applies with no fuzz.

Exit codes: 0 each mutant was caught, or its tests cannot run on this machine, which the table
says; 1 one survived, or does not apply or build, or a test fails without any; 2 wrong usage;
3 something is missing (patch, cmake, ninja); 77 from --check: what it takes is not here.
HELP
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

say() { printf '== %s\n' "$*"; }
die() { # die CODE MESSAGE...
  local code=$1
  shift
  printf 'mutants: %s\n' "$*" >&2
  exit "$code"
}

# ---- The mutants -----------------------------------------------------------------------------

meaning_of() { head -n 1 "$here/$1.patch"; }
tests_of() { sed -n 's/^Caught-by: \([^ ]* [^ ]*\)$/\1/p' "$here/$1.patch"; } # PROGRAM TEST
programs_of() { sed -n 's/^Caught-by: \([^ ]*\) .*/\1/p' "$here/$1.patch" | sort -u; }
files_of() { sed -n 's/^Does-not-compile: \([^ ]*\)$/\1/p' "$here/$1.patch"; } # that must not compile
limit_of() {
  local limit
  limit=$(sed -n 's/^Limit: \([0-9]*\) s$/\1/p' "$here/$1.patch")
  echo "${limit:-120}"
}

known=()
for file in "$here"/*.patch; do
  file=${file##*/}
  known+=("${file%.patch}")
done

# in_tree FOLDER MUTANT ARGUMENT...: patch, quietly, with nothing left beside what it changes.
in_tree() {
  local folder=$1 mutant=$2
  shift 2
  patch -d "$folder" -p1 --fuzz=0 --no-backup-if-mismatch -r - -s "$@" <"$here/$mutant.patch"
}

# ---- Arguments -------------------------------------------------------------------------------

work=$root/build/mutants
checked_build=""
selected=()
cmake_arguments=()
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --list)
      for mutant in "${known[@]}"; do printf '%-34s %s\n' "$mutant" "$(meaning_of "$mutant")"; done
      exit 0
      ;;
    --work | --check)
      [[ -n ${2:-} ]] || die 2 "$1 needs a folder."
      if [[ $1 == --work ]]; then work=$2; else checked_build=$2; fi
      shift
      ;;
    --)
      shift
      cmake_arguments=("$@")
      break
      ;;
    -*) die 2 "unknown option '$1'; see --help." ;;
    *)
      matches=()
      for mutant in "${known[@]}"; do
        [[ $mutant == "$1" || $mutant == "$1"* || ${mutant#*-} == "$1"* ]] && matches+=("$mutant")
      done
      ((${#matches[@]} == 1)) ||
        die 2 "'$1' names ${#matches[@]} mutants; --list shows all."
      selected+=("${matches[0]}")
      ;;
  esac
  shift
done
((${#selected[@]})) || selected=("${known[@]}")

if ! command -v patch >/dev/null; then
  [[ -z $checked_build ]] || die 77 "NOT CHECKED: there is no patch here"
  die 3 "there is no patch; as root: apt-get install patch"
fi
command -v cmake >/dev/null || die 3 "there is no cmake; ./tools/run.sh installs what is missing"

# ---- --check ---------------------------------------------------------------------------------

# tests_in PROGRAM: the names of all its tests.
tests_in() {
  "$1" --gtest_list_tests 2>/dev/null |
    awk '/^[^ ]/ { suite = $1; next } { print suite $1 }'
}

check() { # check BUILD
  local mutant program test file wrong=0 not_built="" said
  declare -A listed
  for mutant in "${known[@]}"; do
    said=$(in_tree "$root" "$mutant" --dry-run 2>&1) || {
      printf '%s does not apply any more:\n%s\n' "$mutant" "$said"
      wrong=1
    }
    [[ $(meaning_of "$mutant") == *. && -n $(tests_of "$mutant")$(files_of "$mutant") ]] || {
      echo "$mutant has not the lines that --help asks for"
      wrong=1
    }
    while read -r file; do
      [[ -f $root/$file ]] || {
        echo "$mutant is to be caught in $file, which is not there"
        wrong=1
      }
    done < <(files_of "$mutant")
    while read -r program test; do
      grep -qxF "$program" "$1/submission_programs.txt" || {
        echo "$mutant is to be caught by $program, which the submission tier does not run"
        wrong=1
      }
      [[ -x $1/bin/$program ]] || {
        not_built+=" $program"
        continue
      }
      [[ -n ${listed[$program]:-} ]] || listed[$program]=$(tests_in "$1/bin/$program")
      grep -qxF "$test" <<<"${listed[$program]}" || {
        echo "$mutant is to be caught by $test, which is no test of $program"
        wrong=1
      }
    done < <(tests_of "$mutant")
  done
  ((wrong == 0)) || return 1
  echo "${#known[@]} mutants apply, and the tests that are to catch them are there"
  [[ -z $not_built ]] || echo "not built here:$(xargs -n 1 <<<"$not_built" | sort -u | xargs printf ' %s')"
}

if [[ -n $checked_build ]]; then
  check "$checked_build"
  exit
fi

# ---- The copy --------------------------------------------------------------------------------

mkdir -p "$work" || die 3 "cannot make $work"
work=$(cd "$work" && pwd)
tree=$work/tree
build=$tree/build/dev
log=$work/log
mkdir -p "$tree" "$log"
exec {lock}>"$work/.lock"
flock -n "$lock" || die 3 "another run is at work in $work"

# The project's own files, also those not yet committed; where git cannot say, all but what is built.
project_files() {
  cd "$root" || return
  local git=(git -c safe.directory="$root" ls-files)
  if "${git[@]}" --error-unmatch CMakeLists.txt >/dev/null 2>&1; then
    "${git[@]}" --cached --others --exclude-standard
  else
    find . \( -path ./build -o -path ./.deps -o -path ./.cache -o -path ./.git \) -prune \
      -o -type f -print | sed 's|^\./||'
  fi | while read -r file; do
    [[ -f $file ]] && echo "$file"
  done | sort
}

# Makes the copy what the project is, whatever an interrupted run left there. What differs gets the
# time of now, so that ninja builds it anew; what is the same keeps its own.
sync_tree() {
  local file copied=0
  project_files >"$work/files" || return
  [[ ! -f $work/files.before ]] || comm -13 "$work/files" "$work/files.before" |
    while read -r file; do rm -f "$tree/$file"; done
  while read -r file; do
    cmp -s "$root/$file" "$tree/$file" && continue
    mkdir -p "$tree/$(dirname "$file")"
    cp --remove-destination "$root/$file" "$tree/$file" || return
    ((++copied))
  done <"$work/files"
  cp "$work/files" "$work/files.before"
  [[ ! -e $root/.deps || -e $tree/.deps ]] || ln -s "$root/.deps" "$tree/.deps"
  say "copied what changed: $copied files of $(wc -l <"$work/files")"
}

# A hang leaves processes behind, all of them programs of the copy.
end_leftovers() {
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2>/dev/null) == "$build"/* ]] && kill -9 "${process#/proc/}"
  done
  return 0
}
trap end_leftovers EXIT
trap 'echo "mutants: interrupted; the next run puts everything back" >&2; exit 130' INT
trap 'exit 143' TERM

# ---- Building and running --------------------------------------------------------------------

configure() {
  local launcher=""
  command -v ccache >/dev/null && launcher=ccache
  (cd "$tree" && cmake --preset dev -DKILN_TESTS=ON -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" "${cmake_arguments[@]}") \
    >"$log/configure.log" 2>&1
}

build_programs() { # build_programs LOG PROGRAM...
  local to=$1
  shift
  (($#)) || return 0
  cmake --build "$build" -j "$(nproc)" --target "$@" >"$log/$to" 2>&1
}

# run_test LOG LIMIT PROGRAM TEST: one line on stdout: passed, skipped, failed, hung or missing, and
# the test's name.
run_test() {
  local to=$1 limit=$2 program=$3 test=$4 status=0 outcome=failed
  # As kiln_test() of tests/CMakeLists.txt has it.
  KILN_SIMULATED_KERNELS=record timeout -k 5 "$limit" "$build/bin/$program" --gtest_filter="$test" >"$to" 2>&1 </dev/null || status=$?
  case $status in
    0)
      outcome=missing # no test has that name
      grep -q '^\[  PASSED  \] 1 test' "$to" && outcome=passed
      grep -q '^\[  SKIPPED \]' "$to" && outcome=skipped
      ;;
    124 | 137) outcome=hung ;;
    126 | 127) outcome=missing ;;
  esac
  echo "$outcome $test"
}

# run_tests LOG LIMIT: run_test for each line "PROGRAM TEST" of stdin, as many at once as there are
# cores.
run_tests() {
  local to=$log/$1 limit=$2 program test n=0
  while read -r program test; do
    while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n; done
    ((++n))
    run_test "$to.$n" "$limit" "$program" "$test" &
  done
  wait
}

unity_of() { grep -rlF --include='unity_*' "\"$tree/$1\"" "$build"; } # unity_of FILE

# compile_file FILE: one line on stdout: passed, failed (an error in it or its headers) or missing, and the
# file's name. Compiles it by itself, with the options that it has in the build.
compile_file() {
  local file=$1 to=$log/compile.${1//\//-} unity command outcome=missing
  unity=$(unity_of "$file") &&
    command=$(sed -n "s|^ *\"command\": \"\(.*\) -o .* -c $unity\",$|\1|p" "$build/compile_commands.json")
  if [[ -n ${command:-} ]]; then
    command=$(sed 's/\\\(.\)/\1/g' <<<"$command") # as JSON has it
    if (cd "$build" && eval "$command -fsyntax-only $tree/$file") >"$to" 2>&1; then
      outcome=passed
    elif grep -q "^$tree/.*:[0-9:]* error: " "$to"; then
      outcome=failed
    fi
  fi
  echo "$outcome $file"
}
compile_files() { while read -r file; do compile_file "$file"; done; } # each line of stdin

table=""
row() { # row MUTANT CAUGHT_BY SECONDS
  table+="| $1 | $(meaning_of "$1") | $2 | $3 s |"$'\n'
}

survived=() # and what could not be tried for a fault of its own
untried=0
try() { # try MUTANT: 0 if it was caught
  local mutant=$1 began=$SECONDS outcomes said
  local programs tests
  mapfile -t programs < <(programs_of "$mutant")
  mapfile -t tests < <(tests_of "$mutant")
  if grep -qxFf <(printf 'skipped %s\n' "${tests[@]#* }") <<<"$control"; then
    say "   not tried: a test that is to catch it is skipped on this machine"
    row "$mutant" "NOT TRIED: ${tests[*]#* } cannot run here" 0
    ((++untried))
    return
  fi
  said=$(in_tree "$tree" "$mutant" 2>&1) || {
    printf '%s\n' "$said"
    row "$mutant" "DOES NOT APPLY" 0
    return 1
  }
  if build_programs "$mutant.build" "${programs[@]}"; then
    outcomes=$(run_tests "$mutant.test" "$(limit_of "$mutant")" < <(tests_of "$mutant") &&
      files_of "$mutant" | compile_files)
  else
    tail -n 20 "$log/$mutant.build"
    outcomes=unbuilt
  fi
  end_leftovers
  in_tree "$tree" "$mutant" --reverse || die 1 "$mutant cannot be taken out again"
  case $outcomes in
    unbuilt) row "$mutant" "DOES NOT BUILD" $((SECONDS - began)) && return 1 ;;
    *passed\ * | *missing\ * | *skipped\ *)
      printf '   %s\n' "${outcomes//$'\n'/$'\n   '}"
      row "$mutant" "SURVIVED: $(paste -sd ',' <<<"$outcomes" | sed 's/,/, /g')" $((SECONDS - began))
      return 1
      ;;
  esac
  outcomes=$(sed 's/^failed \(.*\.cc\)$/\1 (does not compile)/; s/^failed //; s/^hung \(.*\)/\1 (hangs)/' <<<"$outcomes" | paste -sd ',' |
    sed 's/,/, /g')
  row "$mutant" "$outcomes" $((SECONDS - began))
  say "   caught in $((SECONDS - began)) s by $outcomes"
}

# ---- The run ---------------------------------------------------------------------------------

began=$SECONDS
sync_tree || die 3 "the project's files cannot be copied to $tree"
say "configure"
configure || {
  tail -n 20 "$log/configure.log" >&2
  die 1 "cmake failed; see $log/configure.log"
}
mapfile -t programs < <(for mutant in "${selected[@]}"; do programs_of "$mutant"; done | sort -u)
mapfile -t tests < <(for mutant in "${selected[@]}"; do tests_of "$mutant"; done | sort -u)
mapfile -t files < <(for mutant in "${selected[@]}"; do files_of "$mutant"; done | sort -u)
# Building a file's library makes the headers that are generated for it, too.
mapfile -t libraries < <(for file in "${files[@]}"; do unity_of "$file"; done |
  sed 's|.*/CMakeFiles/\(.*\)\.dir/.*|\1|' | sort -u)
programs+=("${libraries[@]}")
say "build without a mutant: ${programs[*]}"
build_programs control.build "${programs[@]}" || {
  tail -n 20 "$log/control.build" >&2
  die 1 "the build failed; see $log/control.build"
}
say "without a mutant: ${#tests[@]} tests, ${#files[@]} files"
control=$( ((!${#tests[@]})) || run_tests control.test 600 < <(printf '%s\n' "${tests[@]}")
  ((!${#files[@]})) || compile_files < <(printf '%s\n' "${files[@]}"))
if grep -v '^passed \|^skipped \|^$' <<<"$control"; then
  die 1 "these do not pass, or compile, without a mutant, so they show nothing; see $log/control.test.* and $log/compile.*"
fi
prepared=$((SECONDS - began))

for mutant in "${selected[@]}"; do
  say "$mutant: $(meaning_of "$mutant")"
  try "$mutant" || survived+=("$mutant")
done

printf '\n| mutant | what it breaks | caught by | time |\n|---|---|---|---|\n%s\n' "$table"
echo "${#selected[@]} mutants, $((${#selected[@]} - ${#survived[@]} - untried)) caught," \
  "${#survived[@]} not, $untried not tried; $((SECONDS - began)) s, $prepared s of them before the first"
((${#survived[@]} == 0)) || {
  echo "NOT CAUGHT: ${survived[*]}"
  exit 1
}
