#!/usr/bin/env python3
"""Unpacks wheels into .deps so that a part is there as a whole or not at all.

usage: unpack_wheels.py WHEELS_DIR DEPS_DIR PART PINS

Everything is unpacked beside its place and renamed into it file by file; DEPS_DIR/installed/PART,
with PINS in its first line and then a line a file, is written last. Until then nobody counts the
part as installed. Files that only its earlier pins brought are removed. The caller holds the lock.
"""
import os
import sys
import zipfile
from pathlib import Path


def place_of(name, part):
    """Where a file of a wheel belongs under DEPS_DIR; None for what nobody needs."""
    if part == "frontend":  # a Python package that carries its headers at the top
        return f"nvidia/cudnn_frontend/{name}" if name.startswith("include/") else None
    if not name.startswith("nvidia/"):
        return None
    if part.startswith("test-"):
        return f"tests/{part}/{name}"
    return f"{part}/{name}" if part.startswith("nvrtc-") else name


def opens_the_part(name):
    """True for the libraries that programs look for: those come last, with what they need in place."""
    return os.path.basename(name).startswith(("libnvrtc.so", "libcudnn.so"))


def main(wheels_dir, deps_dir, part, pins):
    deps = Path(deps_dir)
    unpacked = Path(wheels_dir) / "unpacked"
    names = []
    for wheel in sorted(Path(wheels_dir).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                place = None if entry.is_dir() else place_of(entry.filename, part)
                if place:
                    archive.extract(entry, unpacked)
                    names.append((entry.filename, place))
    if not names:
        sys.exit(f"no file for {part} in the wheels under {wheels_dir}")

    stamp = deps / "installed" / part
    earlier = stamp.read_text().splitlines()[1:] if stamp.exists() else []
    stamp.unlink(missing_ok=True)
    for name, place in sorted(names, key=lambda pair: opens_the_part(pair[1])):
        (deps / place).parent.mkdir(parents=True, exist_ok=True)
        if "bin" in Path(name).parent.parts:  # zipfile makes no file a program
            (unpacked / name).chmod(0o755)
        os.replace(unpacked / name, deps / place)
    places = sorted(place for _, place in names)
    for place in set(earlier) - set(places):
        (deps / place).unlink(missing_ok=True)

    stamp.parent.mkdir(exist_ok=True)
    fresh = stamp.with_suffix(".new")
    fresh.write_text("\n".join([pins, *places]) + "\n")
    os.replace(fresh, stamp)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
