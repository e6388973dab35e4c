"""Builds in advance, packs, and the reasons of misses: all by the kiln program of this package."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from . import errors
from ._given import path, several, text, whole
from ._library import program_path
from ._seeds import seeds_of_packages
from .service import variables

_Texts = Union[str, Sequence[str]]
# By the names of ErrorCode, as the program's JSON spells them: "invalid_argument", "io".
_BY_NAME = {
    re.sub("(?<=[a-z])(?=[A-Z])", "_", each.__name__).lower().removesuffix("_error"): each for each in errors.CLASSES
}


@dataclass(frozen=True)
class Warmed:
    """What kiln.warm() did. ``entries`` has one dictionary a kernel, as ``kiln warm --json``."""

    requested: int
    hits: int
    compiled: int
    waited: int
    failed: int
    not_stored: int
    missing: int
    seconds: float
    entries: list[dict[str, Any]] = field(repr=False)

    def __str__(self) -> str:
        counts = f"{self.requested} kernels: {self.hits} hits, {self.compiled} compiled"
        for name in ("waited", "failed", "not_stored", "missing"):
            if getattr(self, name):
                counts += f", {getattr(self, name)} {name.replace('_', ' ')}"
        return f"{counts}, in {self.seconds:.1f} s"


@dataclass(frozen=True)
class Packed:
    """What kiln.pack() wrote: ``missing`` and ``failed`` of what was selected are not in it, and
    ``problems`` says why of each. ``header`` has the pack's name, time, serial and toolchains."""

    file: str
    objects: int
    bytes: int
    header: dict[str, Any]
    missing: int
    failed: int
    toolchain: str | None
    signed_by: list[str]
    problems: list[dict[str, Any]] = field(repr=False)


@dataclass(frozen=True)
class Unpacked:
    """What kiln.unpack() put into the cache; ``problems`` has what ``failed``, ``skipped`` counts rows
    of kinds that a later version has added, ``revoked`` the objects that the key file revokes, and
    ``header`` is as in :class:`Packed`."""

    file: str
    objects: int
    stored: int
    already_there: int
    failed: int
    revoked: int
    skipped: int
    header: dict[str, Any]
    toolchain: str | None
    signed_by: list[str]
    problems: list[dict[str, Any]] = field(repr=False)


@dataclass(frozen=True)
class Why:
    """Why a request misses, or what makes two keys differ: it prints itself."""

    same: bool
    key: str
    nearest: str | None
    differences: list[dict[str, Any]] = field(repr=False)
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


def warm(
    preset: _Texts | None = None,
    manifest: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    arch: _Texts | None = None,
    *,
    template: _Texts | None = None,
    profile: _Texts | None = None,
    quick: bool = False,
    all: bool = False,
    attention: bool = True,
    driver: str | None = None,
    jobs: int | None = None,
    dry_run: bool = False,
    progress: bool = True,
) -> Warmed:
    """Builds kernels before a job needs them; no GPU and no driver has to be there.

    ``preset`` is a model, ``"llama-3-8b"``, or a file of the same form; ``manifest`` a file that
    KILN_RECORD has written; ``template`` a template with parameters; ``quick`` and ``all`` are the
    sets of that name. ``arch`` is ``"9.0"``, ``"8.0,9.0"`` or a list; without it and without
    ``profile``, a published device, builds are for the devices of this machine. ``attention=False``
    leaves a preset's attention out. ``driver`` is the CUDA version of an older driver there,
    ``"12.4"``. On a terminal the program draws a progress bar. Raises the error that stopped it
    before the first build; what
    failed later is counted in the result, and its entry has the error.
    """
    options = ["warm", "--json", *_selection(preset, manifest, arch, template, profile)]
    options += [*_option("jobs", jobs, whole), *_option("driver", driver)]
    options += ["--quick"] * quick + ["--all"] * all + ["--dry-run"] * dry_run
    options += ["--no-attention"] * (not attention)
    report = _run(options, progress)
    counts = {name: report.get(name, 0) for name in Warmed.__dataclass_fields__}
    return Warmed(**counts)


def pack(
    file: str | os.PathLike,
    preset: _Texts | None = None,
    manifest: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    arch: _Texts | None = None,
    *,
    template: _Texts | None = None,
    profile: _Texts | None = None,
    sign: str | os.PathLike | None = None,
    serial: int | None = None,
    progress: bool = True,
) -> Packed:
    """Writes objects of the cache into one file, ``NAME.kpack`` or, compressed, ``NAME.kpack.zst``.

    The words select as those of :func:`warm` do, and without any everything is packed; ``arch`` and
    ``template`` alone are filters. ``sign`` is a private key of ``kiln key new``. ``serial`` is what
    tells a newer pack from an older one; None: the time, in milliseconds.
    """
    options = ["pack", "--json", "-o", path("file", file)]
    options += _selection(preset, manifest, arch, template, profile)
    options += [*_option("sign", sign, path), *_option("serial", serial, whole)]
    return Packed(**_run(options, progress))


def unpack(
    file: str | os.PathLike, *, keys: str | os.PathLike | None = None, progress: bool = True
) -> Unpacked:
    """Puts the objects of a pack into the cache, each checked; with ``keys``, a file of public keys, only
    if one of them has signed it."""
    options = ["unpack", "--json", path("file", file), *_option("keys", keys, path)]
    return Unpacked(**_run(options, progress))


def why(
    *keys: str | os.PathLike,
    template: str | None = None,
    manifest: str | os.PathLike | None = None,
    arch: str | None = None,
) -> Why:
    """Which fields make two keys differ; or, of a template with parameters, a manifest or the file of a
    source, and of an architecture, which entry of the cache comes nearest and what differs: a :class:`Why`."""
    options = ["why", *several("keys", keys, path)]
    options += [*_option("manifest", manifest, path), *_option("template", template), *_option("arch", arch)]
    answer = _run([*options, "--json"], False)
    shown = _program(options, True)[1]
    names = ("same", "key", "nearest", "differences")
    return Why(**{name: answer[name] for name in names}, text=shown.rstrip("\n"))


def _option(name: str, value: Any, one: Callable[[str, Any], Any] = text) -> list[str]:
    return [] if value is None else [f"--{name}", str(one(name, value))]


def _selection(preset: Any, manifest: Any, arch: Any, template: Any, profile: Any) -> list[str]:
    options = []
    for name, value, one in (
        ("preset", preset, path),
        ("manifest", manifest, path),
        ("template", template, text),
        ("profile", profile, path),
    ):
        for each in several(name, value, one):
            options += [f"--{name}", each]
    return options if arch is None else [*options, "--arch", ",".join(several("arch", arch))]


def _program(options: Sequence[str], is_quiet: bool) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(program_path()), *options],
        env={**os.environ, **seeds_of_packages(), **variables()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if is_quiet else None,
        check=False,
    )
    said = (done.stderr or b"").decode(errors="replace")
    return done.returncode, done.stdout.decode(errors="replace"), said


def _run(options: Sequence[str], progress: bool) -> dict[str, Any]:
    status, output, said = _program(options, not progress)
    try:
        document = json.loads(output)
    except ValueError:
        raise errors.Error(
            f"kiln {' '.join(options)}: status {status}: {said.strip() or output.strip()}"
        ) from None
    if set(document) == {"error"}:
        error = document["error"]
        raise _BY_NAME.get(error["code"], errors.Error)(error["message"])
    return document
