#!/usr/bin/env bash
# Makes the Debian package, looks at what is in it and what it depends on, installs it with dpkg into a
# root of its own, uses the program there, and removes it. Arguments: see CMakeLists.txt. Exit code 77:
# no dpkg here, or what it needs.
set -euo pipefail

if (($# != 3)); then
  echo "usage: package_test.sh BUILD INSTALLED_FILES FAKE_NVRTC" >&2
  exit 2
fi
build=$1 installed_files=$2 nvrtc=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
fakeroot=()
((EUID == 0)) || fakeroot=(fakeroot)
for each in dpkg-deb dpkg-shlibdeps file "${fakeroot[@]}"; do
  command -v "$each" >/dev/null || {
    echo "SKIPPED: $each is not installed" >&2
    exit 77
  }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/kiln-package.XXXXXX")
trap 'rm -rf "$work"' EXIT
say() { printf '== %s\n' "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

say "the command of the README"
grep -q '^ *(cd build/release && cpack)$' "$root/README.md" || fail "README has another command"
(cd "$build" && cpack -B "$work/out") >"$work/log" 2>&1 || fail "$(<"$work/log")"
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/python/kiln/_version.py")
package=$work/out/kiln_${version}_$(dpkg --print-architecture).deb
[[ -f $package ]] || fail "there is no $package, but $(ls "$work/out")"

say "what it has, and what it depends on"
dpkg-deb --fsys-tarfile "$package" | tar -t | sed -n 's|^\./usr/\(.*[^/]\)$|\1|p' | LC_ALL=C sort >"$work/has"
sed s,zsh/site-functions,zsh/vendor-completions, "$installed_files" | LC_ALL=C sort | diff - "$work/has" >&2 || fail "'<' is missing, '>' is too much"
[[ $(dpkg-deb -f "$package" Version) == "$version" ]] || fail "its version is not $version"
depends=$(dpkg-deb -f "$package" Depends)
for each in libc6 libstdc++6 libfmt libspdlog libsqlite3 libssl libzstd libxxhash liblz4 libminizip; do
  [[ $depends == *$each* ]] || fail "it does not depend on $each: $depends"
done
[[ $depends != *nvidia* && $depends != *cuda* ]] || fail "it depends on a driver or a toolkit: $depends"

say "installed"
mkdir -p "$work/root/var/lib/dpkg"/{info,updates,triggers} "$work/bin"
: >"$work/root/var/lib/dpkg/status"
# The package's scripts run on this machine, whose libraries are not theirs to look for.
printf '#!/bin/sh\necho ldconfig >>"%s"\n' "$work/called" >"$work/bin/ldconfig"
chmod +x "$work/bin/ldconfig"
own_dpkg() { # as any user, in a root that has no other package
  PATH=$work/bin:$PATH "${fakeroot[@]}" dpkg --instdir="$work/root" --admindir="$work/root/var/lib/dpkg" --log=/dev/null \
    --force-depends --force-not-root --force-script-chrootless "$@" >"$work/log" 2>&1 || fail "dpkg $*: $(<"$work/log")"
}
own_dpkg -i "$package"
kiln=$work/root/usr/bin/kiln
[[ $("$kiln" --version) == "kiln $version" ]] || fail "it is not version $version"
env -i PATH="$PATH" HOME="$work" KILN_NVRTC="$nvrtc" "$kiln" warm --template scaled_softmax_fwd:dtype=bf16 \
  --arch 9.0 >"$work/log" 2>&1 || fail "$(<"$work/log")"
grep -q '9 compiled' "$work/log" || fail "with the worker beside it: $(<"$work/log")"
man -l "$work/root/usr/share/man/man1/kiln.1" >/dev/null 2>&1 || ! command -v man >/dev/null || fail "no man page"
# shellcheck source=/dev/null
(. "$work/root/usr/share/bash-completion/completions/kiln" && complete -p kiln) >/dev/null || fail "no completion"

[[ $(<"$work/called") == ldconfig ]] || fail "programs would not find the library"

say "removed"
own_dpkg --purge kiln
left=$(find "$work/root" -path "$work/root/var/lib/dpkg" -prune -o ! -type d -print)
[[ -z $left ]] || fail "it leaves $left"
say "passed in $SECONDS s, $(($(stat -c %s "$package") >> 10)) KiB, Depends: $depends"
