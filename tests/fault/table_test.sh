#!/usr/bin/env bash
# remote.md names tests that exist, and each row names one.
set -euo pipefail
cd "$(dirname "$0")/../.."
status=0
say() {
  echo "tests/fault/remote.md: $*" >&2
  status=1
}
a_test='`([A-Z][A-Za-z]+\.[A-Za-z0-9_]+|test_[a-z0-9_]+)`'
names=$(grep -oE "$a_test" tests/fault/remote.md | tr -d '`' | sort -u)
# gtest's tests as Suite.Name, however clang-format broke the line; CMake's and Python's by their names.
known=$(
  find tests -name '*.cc' -print0 | xargs -0 cat | tr '\n' ' ' |
    grep -oE 'TEST(_F|_P)?\( *[A-Za-z0-9]+, *[A-Za-z0-9_]+' | sed -E 's/TEST(_F|_P)?\( *//; s/, */./'
  grep -rhoE 'NAME [A-Z][A-Za-z]+\.[A-Za-z]+' --include=CMakeLists.txt tests | cut -d' ' -f2
  grep -rhoE '^def test_[a-z0-9_]+' --include='test_*.py' tests/python | cut -d' ' -f2
)
[[ -n $names ]] || say "names no test"
for name in $(comm -23 <(echo "$names") <(sort -u <<<"$known")); do
  say "there is no test $name"
done
while read -r row; do
  [[ $row =~ $a_test ]] || say "a row without a test: $row"
done < <(grep -E '^\|' tests/fault/remote.md | grep -vE '^\|(-|---| fault )')
exit $status
