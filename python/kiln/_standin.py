"""The environment that puts Kiln's stand-in for NVRTC beneath a program and its children."""

from __future__ import annotations

import os
import sys

VARIABLE = "LD_AUDIT"
_OLDEST_GLIBC = (2, 35)


def environment() -> dict[str, str]:
    """The variable that names the loader's audit module, behind those of others; empty, with one line on
    stderr, where there can be none: the program then runs as without Kiln."""
    from ._library import library_path

    try:
        name, _, version = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")
    except (AttributeError, OSError, ValueError):
        return _none("that takes glibc")
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_GLIBC:
        return _none(f"that takes glibc 2.35 or newer, and this is {version}")
    root = library_path().parent.parent
    for folder in ("libexec/kiln", "bin"):  # as installed; in a build tree
        module = root / folder / "libkiln-audit.so"
        if module.exists():
            others = [each for each in os.environ.get(VARIABLE, "").split(":") if each]
            return {VARIABLE: ":".join(dict.fromkeys([*others, str(module)]))}
    return _none(f"there is no {root}/libexec/kiln/libkiln-audit.so: install the package kiln-jit again")


def _none(why: str) -> dict[str, str]:
    print(f"kiln: run: nothing stands in for NVRTC: {why}", file=sys.stderr, flush=True)
    return {}
