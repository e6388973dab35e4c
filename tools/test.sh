#!/usr/bin/env bash
# Everything that is checked without a GPU: see --help.
# shellcheck disable=SC2317 # the checks are called through step
set -uo pipefail

usage() {
  cat <<'HELP'
usage: tools/test.sh [--quick | --tidy-all | --mutants | --preset NAME...] [-- ctest arguments]

Installs what is missing, builds, and runs every test that needs no GPU. Closes with
what the failed tests printed, and ctest's summary. Without options, half an hour on two
cores, less with ccache:

  1. clang-format on the project's files
  2. the clang preset's build of all but the tests (-Wthread-safety), and each fuzzer for some
     seconds (KILN_FUZZ_SECONDS) from what tests/fuzz/corpus keeps
  3. clang-tidy on the files changed since the upstream branch, or since the previous commit
  4. presets asan and tsan, with the labels unit, integration and fault
  5. preset dev, with every label but gpu, beside a second NVRTC

  --quick         steps 1 and 5 alone, without fetching the second NVRTC
  --tidy-all      with clang-tidy on every file
  --mutants       nothing of the above: puts known bugs back in, one at a time, and shows that
                  the tests catch each (tests/mutants; minutes)
  --preset NAME   build and test just this preset (dev, release, asan, tsan, clang); repeat for
                  more. dev comes last.
  -- ARGUMENTS    for each ctest, for example: -- -R object_store

Debian packages come from apt-get, as root or through sudo. NVRTC, the CUDA headers, cuDNN and
the cuDNN frontend's headers are each taken from an installed toolkit (CUDA_HOME, CUDA_PATH, the
folder of nvcc on PATH, /usr/local/cuda, /usr), else fetched as wheels into .deps, as is a second
NVRTC. Where a part is missing, only the tests that need it are skipped.

Environment:
  KILN_FUZZ_SECONDS=N how long each fuzzer runs in step 2 (default: 20,000 inputs, 10 s at most)
  KILN_FAULT_LENGTH=N how much the fault tests inject, as a multiple of the default
  KILN_NO_TOOLKIT=1   ignore installed toolkits here and in the build. What runs still finds one
                      on the loader path.

Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 something is missing that cannot
be installed here; the message names it and the command that installs it.
HELP
}

wrong() {
  echo "test.sh: $*" >&2
  exit 2
}

mode=""
presets=()
ctest_arguments=()
set_mode() {
  [[ -z $mode || $mode == "$1" ]] || wrong "$mode and $1 exclude each other."
  mode=$1
}
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --quick | --tidy-all | --mutants) set_mode "$1" ;;
    --preset)
      set_mode --preset
      case ${2:-} in
        dev | release | asan | tsan | clang) presets+=("$2") && shift ;;
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

. "$(dirname "$0")/setup.sh"

# ---- Steps -----------------------------------------------------------------------------------

failed="" # the steps that failed
report=""
skip() { # skip REASON: what a step returns that cannot be done here
  skip_reason=$1
  return 77
}
# step NAME COMMAND...: runs it, says and notes its time and outcome.
step() {
  local name=$1 began=$SECONDS outcome=ok status=0
  shift
  skip_reason=""
  say "$name"
  "$@" || status=$?
  case $status in
    0) ;;
    77) outcome="skipped: $skip_reason" ;;
    *) outcome=FAILED failed+="${failed:+, }$name" ;;
  esac
  [[ $outcome == ok ]] || warn "$name: $outcome"
  report+=$(printf '%4d s  %-28s %s' $((SECONDS - began)) "$name" "$outcome")$'\n'
  return $status
}

# A clone that another user made is read as well: whoever runs this script trusts it already.
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
  files=$(sources '*.h' '*.cc') || return
  xargs -r clang-format --dry-run -Werror <<<"$files"
}

# Prints the commit that "changed" is measured from: where this branch left the default branch of its
# origin, or of this clone; on that branch itself, the previous commit. Fails where there is none.
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
  if [[ $mode == --tidy-all ]]; then
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

check_tidy() {
  local build=build/clang file files
  command -v clang-tidy >/dev/null || {
    skip "clang-tidy is not installed"
    return
  }
  [[ -f $build/compile_commands.json ]] || {
    skip "it needs the clang preset, which was not configured"
    return
  }
  files=$(tidy_files) || {
    skip "no earlier commit to compare with; --tidy-all checks every file"
    return
  }
  files=$(while read -r file; do # what the build does not compile has no flags to check it with
    grep -qF "\"file\": \"$root/$file\"" "$build"/compile_commands.json && echo "$file"
  done <<<"$files")
  say "files: $(wc -w <<<"$files")"
  xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build" <<<"$files"
}

# Sanitizers of GCC 12 place their shadow memory where a kernel with more than 28 random address bits
# may already have put something: there such programs run with a fixed layout, if that is allowed.
fixed_layout=()
if [[ $(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) -gt 28 ]]; then
  setarch -R true 2>/dev/null && fixed_layout=(setarch -R)
fi

build_for_tests() { # build_for_tests PRESET; the build lists each program's tests by running it
  case $1 in
    asan | tsan) build_preset "$1" ON "${fixed_layout[@]}" ;;
    *) build_preset "$1" ON ;;
  esac
}

build_for_clang() { build_preset clang ON -- kiln kiln-worker kiln_library kiln_fuzzers; }
run_fuzzers() { ctest --preset clang -j "$(nproc)" -L '^fuzz$'; }

ctest_log() { echo "build/ctest_$1.log"; } # what ctest printed of PRESET
run_ctest() { # run_ctest PRESET
  local ctest=(ctest --preset "$1" -j "$(nproc)")
  case $1 in
    asan | tsan | clang)
      "${fixed_layout[@]}" "${ctest[@]}" -L '^(unit|integration|fault)$' "${ctest_arguments[@]}"
      ;;
    *) "${ctest[@]}" "${ctest_arguments[@]}" ;;
  esac | tee "$(ctest_log "$1")"
}

test_preset() { # test_preset PRESET
  step "$1: build" build_for_tests "$1" && step "$1: ctest" run_ctest "$1"
}

say_failed_tests() { # say_failed_tests PRESET: once more what each of them printed
  [[ -f $(ctest_log "$1") ]] || return 0
  awk -v preset="$1" '
    /^ *[0-9]+\/[0-9]+ Test +#/ { shown = /\*\*\*/ && !/\*\*\*Skipped/ }
    /^ +Start +[0-9]+:/ || /tests passed,/ { shown = 0 }
    shown && !said++ { print "\n== failed in " preset }
    shown { print }' "$(ctest_log "$1")"
}

# ---- The run ---------------------------------------------------------------------------------

install_packages build test optional
provide_parts nvrtc headers cudnn frontend
[[ -n $mode && $mode != --tidy-all ]] || provide_parts nvrtc-12

case $mode in
  --preset) ;;
  --mutants)
    step "mutants" build_preset dev ON -- mutants
    printf '\n%s' "$report"
    [[ -z $failed ]]
    exit
    ;;
  --quick)
    presets=(dev)
    step "clang-format" check_format
    ;;
  *)
    presets=(asan tsan dev)
    step "clang-format" check_format
    if command -v clang++ >/dev/null; then
      step "clang: build" build_for_clang && step "clang: fuzzers" run_fuzzers
    else
      step "clang: build" skip "clang is not installed"
    fi
    step "clang-tidy" check_tidy
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
test_preset "$last" # last, so that its summary closes the whole run

for preset in "${presets[@]}"; do say_failed_tests "$preset"; done
printf '\n%s' "$report"
say_missing_parts
[[ -z $failed ]] || echo "FAILED: $failed (see above)"
if [[ -f $(ctest_log "$last") ]]; then
  echo
  sed -n '/^[0-9]*% tests passed/,$p' "$(ctest_log "$last")"
fi
[[ -z $failed ]]
