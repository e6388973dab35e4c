#!/usr/bin/env bash
# Runs all checks that need no GPU: see --help.
# shellcheck disable=SC2317 # the checks are called through step
set -uo pipefail

usage() {
  cat <<'HELP'
usage: tools/test.sh [--quick | --tidy-all | --mutants | [--full] [--preset NAME...]]
                     [-- ctest arguments]

Installs missing parts, builds, and runs the tests that need no GPU. Ends with the output of failed
tests, a table of times, and ctest's summary. Without options, runs the submission tier, which every
change must pass: each test in the build that is most likely to show its bug.

  1. clang-format on the project's files
  2. clang-tidy, with -Wthread-safety, on the files changed since the upstream branch, or since the
     previous commit. After KILN_TIDY_SECONDS the remaining files get only -Wthread-safety and
     -Wshadow, for the same time again; files that then remain are named
  3. the product's other files that include a changed header, themselves or through others: clang on
     each by itself, for missing includes; the nearest first, for KILN_TIDY_SECONDS
  4. preset asan (AddressSanitizer, UBSan): code that parses input and shares files, the fault tests
     once, and the inputs that the fuzzers have found
  5. preset tsan: the programs that have threads
  6. preset dev: all other tests, with a second NVRTC; compile tests with the newest NVRTC; kernels
     on the CPU; install, examples
  7. if templates/, src/render/, src/attention/, src/cudnn/, src/compile/ or cache/ changed: the part
     of --full that tests them, each for KILN_EXTRA_SECONDS at most and within the first 30 minutes
     of the run; the table names what is left out

  --full          everything: clang-tidy on every file, each preset whole, the clang build of every
                  file by itself, the compile tests with each NVRTC of tools/wheels.txt, fuzzers, all kernel variants, longer fault tests
                  (KILN_FAULT_LENGTH=5), the tests of Python once more with the oldest torch, the
                  wheel, known bugs put back in; hours
  --quick         only steps 1 and 6, without fetching more NVRTCs and Python's packages
  --tidy-all      the submission tier with clang-tidy on every file
  --mutants       none of the above: puts known bugs back in, one at a time, and shows that the
                  tests catch each (tests/mutants; minutes)
  --preset NAME   build and test only this preset, whole (dev, release, asan, tsan; clang: the
                  fuzzers); repeat for more. dev comes last. With --full, that part of it.
  -- ARGUMENTS    for each ctest, for example: -- -R object_store

Debian packages are installed with apt-get, as root or through sudo. NVRTC, the CUDA headers, cuDNN
and the cuDNN frontend's headers are each taken from an installed toolkit (CUDA_HOME, CUDA_PATH, the
folder of nvcc on PATH, /usr/local/cuda, /usr), else fetched as wheels into .deps, and so are nvcc and
cuobjdump. Further NVRTCs are always wheels. The packages that the tests of Python need are put into .deps/python, torch without
the CUDA libraries that it depends on, and the frameworks for which Kiln stands in into
.deps/frameworks, Triton into .deps/triton; for --full the oldest torch and Triton, too, into
.deps/oldest-torch and .deps/oldest-triton. If a part other than the CUDA headers is missing, only the
tests that need it are skipped.

Environment:
  KILN_TIDY_SECONDS=N  time limit of each half of step 2, and of step 3 (default: 150)
  KILN_EXTRA_SECONDS=N time limit of each part of step 7 (default: 240)
  KILN_FUZZ_SECONDS=N  time of each fuzzer (default: 60 with --full, else 10 at most)
  KILN_FAULT_LENGTH=N  number of faults that the fault tests inject, as a multiple of the default
  KILN_NO_TOOLKIT=1    ignore installed toolkits in this script and in the build. The programs still
                       find one on the loader path.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 a missing part cannot be installed
here; the message names it and the command that installs it.
HELP
}

wrong() {
  echo "test.sh: $*" >&2
  exit 2
}

mode=""
asked_presets=()
ctest_arguments=()
set_mode() {
  [[ -z $mode || $mode == "$1" ]] || wrong "$mode and $1 exclude each other."
  mode=$1
}
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --quick | --full | --tidy-all | --mutants) set_mode "$1" ;;
    --preset)
      case ${2:-} in
        dev | release | asan | tsan | clang) asked_presets+=("$2") && shift ;;
        *) wrong "--preset takes dev, release, asan, tsan or clang, not '${2:-}'." ;;
      esac
      ;;
    --)
      shift
      ctest_arguments=("$@")
      break
      ;;
    *) wrong "unknown argument '$1'; see --help (arguments for ctest go after --)." ;;
  esac
  shift
done
if ((${#asked_presets[@]})); then
  [[ $mode == --full ]] || set_mode --preset
fi

. "$(dirname "$0")/setup.sh"

# ---- Steps -----------------------------------------------------------------------------------

failed="" # the steps that failed
report=""
skip() { # skip REASON: a step that cannot run here returns this
  skip_reason=$1
  return 77
}

# Sets `used` to the processor time, in tenths of a second, that this shell's children have used. Goes
# through a file, since a subshell behind a pipe would report its own children, and has none.
children_time() {
  times >"$scratch"
  used=$(awk 'NR == 2 {
    for (i = 1; i <= 2; ++i) { split($i, t, /[ms]/); sum += t[1] * 60 + t[2] }
    printf "%d", sum * 10 }' "$scratch")
}
scratch=$(mktemp) || die 1 "no temporary file can be made"
trap 'rm -f "$scratch"' EXIT

# Compiles a fixed file and sets `used` to the time taken: a measure of the machine's present speed.
reference_time() {
  local before
  children_time
  before=$used
  ${CXX:-g++} -std=c++20 -O1 -x c++ -c -o /dev/null - <<'CODE'
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <string>
int main(int n, char** v) {
  std::map<std::string, std::function<int(int)>> all{{"a", [](int i) { return i; }}};
  const std::regex word("[a-z]+(/[0-9]*)?");
  return std::regex_match(std::filesystem::path(v[0]).string(), word) ? all["a"](n) : 0;
}
CODE
  children_time
  used=$((used - before))
}
reference=0 # the slowest reference time so far

# Prints the step's processor time in tools/test_budget.txt, in seconds; nothing if it has none.
budget_of() { awk -v name="$1" -F ' *\\| *' '$1 == name { print $2 }' tools/test_budget.txt; }

# over_budget NAME TENTHS: true if the step took more than 1.5 times its time in tools/test_budget.txt,
# scaled to a slower machine.
over_budget() {
  local kept try
  kept=$(budget_of "$1")
  [[ $kept_budgets == yes && -n $kept ]] || return 1
  for try in 1 2; do # measures the machine once more: it may have become slower meanwhile
    if ((reference == 0 || try == 2)); then
      reference_time
      ((used <= reference)) || reference=$used
    fi
    awk -v took="$2" -v kept="$kept" -v now="$reference" -v usual="$(budget_of reference)" 'BEGIN {
      slower = now / 10 / usual; exit !(took / 10 > 1.5 * kept * (slower > 1 ? slower : 1)) }' || return 1
  done
}

# step NAME COMMAND...: runs COMMAND, and notes its times and outcome for the table.
step() {
  local name=$1 began=$SECONDS before took outcome=ok status=0
  shift
  skip_reason=""
  say "$name"
  if [[ $kept_budgets == yes && -n $(budget_of "$name") ]]; then # it may be faster when the step ends
    reference_time
    ((used <= reference)) || reference=$used
  fi
  children_time
  before=$used
  "$@" || status=$?
  children_time
  took=$((used - before))
  case $status in
    0) ;;
    77) outcome="skipped: $skip_reason" ;;
    *) outcome=FAILED failed+="${failed:+, }$name" ;;
  esac
  if [[ $status == 0 ]] && over_budget "$name" "$took"; then
    outcome="FAILED: over 1.5 times the $(budget_of "$name") s of tools/test_budget.txt"
    failed+="${failed:+, }$name"
  fi
  [[ $outcome == ok ]] || warn "$name: $outcome"
  report+=$(printf '%5d s %6d s  %-24s %s' $((SECONDS - began)) $((took / 10)) "$name" "$outcome")$'\n'
  return $status
}

# Accepts a clone that another user owns: by running this script, the caller trusts it already.
git() { command git -c safe.directory="$root" "$@"; }

# sources PATTERN...: the project's own files, also those not yet committed.
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ -f $file ]] && echo "$file"
  done
}

check_format() {
  command -v clang-format >/dev/null || {
    skip "clang-format is not installed"
    return
  }
  local files
  files=$(sources '*.h' '*.cc' '*.c') || return
  xargs -r clang-format --dry-run -Werror <<<"$files"
}

# Prints the commit with which changes are compared: where this branch left its upstream, the default
# branch of its origin or of this clone; on that branch itself, the previous commit. Fails without one.
tidy_base() {
  local upstream base head
  head=$(git rev-parse HEAD) || return
  for upstream in '@{upstream}' origin/HEAD origin/main main; do
    base=$(git merge-base HEAD "$upstream" 2>/dev/null) || continue
    [[ $base != "$head" ]] && echo "$base" && return
  done
  git rev-parse --quiet --verify HEAD~1
}

# tidy_files: prints the .cc files to check. A changed header is checked through the .cc beside it, else
# through one that includes it.
tidy_files() {
  local base file
  if [[ $mode == --tidy-all || $mode == --full ]]; then
    sources '*.cc'
    return
  fi
  base=$(tidy_base) || return
  {
    git diff --name-only --diff-filter=d "$base" -- '*.h' '*.cc'
    git ls-files --others --exclude-standard -- '*.h' '*.cc'
  } | while read -r file; do
    if [[ $file == *.cc ]]; then
      echo "$file"
    elif [[ -f ${file%.h}.cc ]]; then
      echo "${file%.h}.cc"
    else
      git grep -l --untracked -E "#include [\"<](.*/)?$(basename "$file")[\">]" -- '*.cc' | head -n 1
    fi
  done | sort -u
}

# The clang build compiles each file by itself; clang-tidy needs its flags and its generated files.
configure_clang() { build_preset clang ON -- kiln_generated; }

# tidy_for SECONDS ARGUMENT...: runs clang-tidy on the files named on stdin, and starts no file after
# SECONDS. Prints the remaining files on descriptor 3.
tidy_for() {
  local until=$(($(date +%s) + $1))
  shift
  # shellcheck disable=SC2016 # its own variables
  until=$until xargs -r -I '{}' -P "$(nproc)" bash -c '
    (($(date +%s) < until)) || { echo "$1" >&3; exit 0; }
    clang-tidy --quiet -p build/clang "${@:2}" "$1"' bash '{}' "$@"
}

# Compiler errors come with these. One cheap check of its own: clang-tidy refuses to run with the compiler's
# diagnostics alone.
only_the_compiler='--checks=-*,misc-unused-alias-decls,clang-diagnostic-thread-safety*,clang-diagnostic-shadow*'

# Of the files named on stdin prints those that the clang build compiles: others have no flags.
compiled_files() {
  while read -r file; do
    grep -qF "\"file\": \"$root/$file\"" build/clang/compile_commands.json && echo "$file"
  done
}

has_clang_tidy() {
  command -v clang-tidy >/dev/null && command -v clang++ >/dev/null && return
  skip "clang or clang-tidy is not installed"
}

looked_at="" # the files that check_tidy has looked at
check_tidy() {
  local files left status=0 seconds=${KILN_TIDY_SECONDS:-150}
  has_clang_tidy || return
  files=$(tidy_files) || {
    skip "no earlier commit to compare with; --tidy-all checks every file"
    return
  }
  [[ ${python_arguments[0]} == *=ON ]] || files=$(grep -v '^python/' <<<"$files")
  [[ -n $files ]] || return 0
  configure_clang >/dev/null || return
  files=$(compiled_files <<<"$files")
  looked_at=$files
  say "files: $(wc -w <<<"$files")"
  [[ $mode != --tidy-all && $mode != --full ]] || seconds=1000000
  left=$(mktemp) || return
  tidy_for "$seconds" <<<"$files" 3>"$left" || status=$?
  files=$(sort "$left")
  if [[ -n $files ]]; then
    warn "clang-tidy took $seconds s: -Wthread-safety and -Wshadow alone for the $(wc -w <<<"$files") files left"
    tidy_for "$seconds" "$only_the_compiler" <<<"$files" 3>"$left" || status=$?
    [[ ! -s $left ]] || warn "not looked at: $(sort "$left" | xargs)"
  fi
  rm -f "$left"
  return $status
}

# Looks at what a changed header can have left without an include. check_tidy looks at the changed .cc files.
check_includers() {
  local base headers files left status=0
  has_clang_tidy || return
  base=$(tidy_base) || {
    skip "no earlier commit to compare with; --tidy-all checks every file"
    return
  }
  headers=$(git diff --name-only --no-renames "$base" -- '*.h') || return
  files=$(xargs -r tools/includers.sh <<<"$headers") || return
  files=$(grep -vxF -f <(printf '%s\n' "$looked_at") <<<"$files")
  [[ -n $files ]] || return 0
  configure_clang >/dev/null || return
  files=$(compiled_files <<<"$files")
  say "files: $(wc -w <<<"$files")"
  left=$(mktemp) || return
  tidy_for "${KILN_TIDY_SECONDS:-150}" "$only_the_compiler" <<<"$files" 3>"$left" || status=$?
  [[ ! -s $left ]] || warn "not looked at: $(xargs <"$left")"
  rm -f "$left"
  return $status
}

# With more than 28 random address bits the Linux kernel may map something where the sanitizers of
# GCC 12 need their shadow memory. There these programs run with a fixed layout, if that is allowed.
fixed_layout=()
if [[ $(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) -gt 28 ]]; then
  setarch -R true 2>/dev/null && fixed_layout=(setarch -R)
fi

build_for_tests() { # build_for_tests PRESET; the build lists each program's tests by running it
  local targets=()
  [[ $tier != submission ]] || targets=(-- submission)
  case $1 in
    asan | tsan) build_preset "$1" ON "${fixed_layout[@]}" "${targets[@]}" ;;
    clang)
      command -v clang++ >/dev/null || {
        skip "clang is not installed"
        return
      }
      build_preset clang ON
      ;;
    *) build_preset "$1" ON "${targets[@]}" ;;
  esac
}

ctest_log() { echo "build/ctest_$1.log"; } # the log with ctest's output for PRESET
run_ctest() { # run_ctest PRESET
  # More tests than cores: many tests wait for a deadline, a lock or another process.
  local ctest=(ctest --preset "$1" -j "$(($(nproc) * 3 / 2))") prefix=()
  case $1 in
    asan | tsan) prefix=("${fixed_layout[@]}") ctest+=(-L '^(unit|integration|fault)$') ;;
    clang) ctest+=(-L '^fuzz$') ;; # a build for fuzzing is slow for all other tests
  esac
  [[ $tier != submission ]] || ctest+=(-L '^submission$')
  "${prefix[@]}" "${ctest[@]}" "${ctest_arguments[@]}" | tee "$(ctest_log "$1")"
}

test_preset() { # test_preset PRESET
  step "$1: build" build_for_tests "$1" && step "$1: ctest" run_ctest "$1"
}

# The parts of --full that test the changed folders.
run_within() { # run_within COMMAND...: must stop at its first failure, so that a timeout hides none
  local seconds=$((1800 - SECONDS)) limit=${KILN_EXTRA_SECONDS:-240} status=0
  ((seconds <= limit)) || seconds=$limit
  ((seconds >= 20)) || {
    skip "no time is left of 30 minutes, or of KILN_EXTRA_SECONDS; --full does it"
    return
  }
  timeout "$seconds" "$@" || status=$?
  ((status == 124)) || return "$status"
  skip "begun, and not done within $seconds s; --full does all of it"
}
run_program() { # run_program PROGRAM: a program of preset dev that the submission tier leaves out
  build_preset dev ON -- "$1" &&
    run_within env KILN_TEST_ALL_VARIANTS=1 GTEST_FAIL_FAST=1 "build/dev/bin/$1"
}
run_extra() {
  local base
  base=$(tidy_base 2>/dev/null) || {
    step "what belongs to the change" skip "no earlier commit to compare with"
    return
  }
  changed() { # changed PATH...
    ! git diff --quiet "$base" -- "$@" || [[ -n $(git ls-files --others --exclude-standard -- "$@") ]]
  }
  if changed templates/ src/render/; then
    step "templates: arithmetic" run_program template_arithmetic_test
    step "templates: spills" run_program template_spills_test
  fi
  if changed src/attention/ src/cudnn/ && [[ -x build/dev/bin/kiln-plan-worker ]]; then
    step "attention: rules" run_program probe_against_table_test
  fi
  if changed cache/ src/compile/ && [[ $failed != *"asan: build"* ]]; then
    step "longer faults" run_within env KILN_FAULT_LENGTH=2 "${fixed_layout[@]}" \
      ctest --preset asan -j "$(nproc)" -L '^fault$' -L '^submission$' --stop-on-failure
  fi
}

run_mutants() (
  unset KILN_TEST_ALL_VARIANTS KILN_FAULT_LENGTH # a slow test would count as a hang, and so as caught
  build_preset dev ON -- mutants
)

say_failed_tests() { # say_failed_tests PRESET: prints the output of the failed tests again
  [[ -f $(ctest_log "$1") ]] || return 0
  awk -v preset="$1" '
    /^ *[0-9]+\/[0-9]+ Test +#/ { shown = /\*\*\*/ && !/\*\*\*Skipped/ }
    /^ +Start +[0-9]+:/ || /tests passed,/ { shown = 0 }
    shown && !said++ { print "\n== failed in " preset }
    shown { print }' "$(ctest_log "$1")"
}

# ---- The run ---------------------------------------------------------------------------------

groups=(build test optional)
[[ $mode != --full ]] || groups+=(full)
install_packages "${groups[@]}"
provide_parts nvrtc nvjitlink headers cudnn frontend
[[ -n $mode && $mode != --tidy-all && $mode != --full ]] || provide_parts nvrtc-12 test-nvrtc-newest \
  test-nvcc test-cuobjdump
[[ $mode != --full ]] || provide_parts test-nvrtc-oldest
[[ $mode == --quick || $mode == --mutants ]] || provide_for_tests "$mode"

tier=submission
kept_budgets=no
configure_arguments=(-DKILN_SANITIZE_WHOLE=OFF "${python_arguments[@]}")
presets=(asan tsan dev)
case $mode in
  --preset)
    tier=full
    presets=("${asked_presets[@]}")
    ;;
  --mutants)
    step "mutants" run_mutants
    printf '\n%s' "$report"
    [[ -z $failed ]]
    exit
    ;;
  --quick)
    presets=(dev)
    step "clang-format" check_format
    ;;
  --full)
    tier=full
    configure_arguments=(-DKILN_SANITIZE_WHOLE=ON "${python_arguments[@]}")
    export KILN_TEST_ALL_VARIANTS=1 KILN_FAULT_LENGTH=${KILN_FAULT_LENGTH:-5}
    export KILN_FUZZ_SECONDS=${KILN_FUZZ_SECONDS:-60}
    if ((${#asked_presets[@]})); then
      presets=("${asked_presets[@]}")
    else
      presets=(clang release asan tsan dev)
      step "clang-format" check_format
      step "clang-tidy" check_tidy
      step "mutants" run_mutants
    fi
    ;;
  *)
    kept_budgets=yes
    step "clang-format" check_format
    step "clang-tidy" check_tidy
    step "what includes a change" check_includers
    ;;
esac

last=${presets[-1]}
for preset in "${presets[@]}"; do
  [[ $preset == dev ]] && last=dev
done
rm -f build/ctest_*.log
for preset in "${presets[@]}"; do
  [[ $preset == "$last" ]] || test_preset "$preset"
done
test_preset "$last" # last, so that its summary is the end of the whole run
[[ $kept_budgets == no ]] || run_extra

for preset in "${presets[@]}"; do say_failed_tests "$preset"; done
printf '\n%7s %8s  %s\n%s%5d s           %s\n' wall processor step "$report" "$SECONDS" "all of it"
[[ $kept_budgets == no || $SECONDS -le 2400 ]] ||
  warn "This took $((SECONDS / 60)) minutes. It is meant to take 30: see what grew in the table above."
say_missing_parts
[[ -z $failed ]] || echo "FAILED: $failed (see above)"
if [[ -f $(ctest_log "$last") ]]; then
  echo
  sed -n '/^[0-9]*% tests passed/,$p' "$(ctest_log "$last")"
fi
[[ -z $failed ]]
