"""Kiln in place of the extensions that frameworks build: no line of theirs is changed.

    import kiln.compat
    print(kiln.compat.install("neox", "apex"))

or, for a whole job: ``python -m kiln run --compat neox,apex train.py ...``. Afterwards
an import of such an extension, ``scaled_masked_softmax_cuda`` for example, gives a
module with the same functions, whose kernels are in Kiln's cache or are built by the
first call within a time limit. Functions of Python modules are replaced when these are
imported.

Where Kiln cannot compute a call, the framework's own path is taken, with one warning
for each function (FallbackWarning); KILN_PYTHON_STRICT=1 makes that an error.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

from .. import errors
from .._library import library_path
from . import _finder
from ._own_path import FallbackWarning, is_strict, warn_once
from ._table import EXTENSION, FRAMEWORKS, IF_ABSENT, REPLACED, VARIABLE, Module

__all__ = ["FRAMEWORKS", "FallbackWarning", "Installation", "describe", "install"]


@dataclass
class Installation:
    """What is replaced, by framework, and what is not: why. As a str, one line."""

    replaced: dict[str, list[str]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        replaced = "; ".join(
            f"for {framework}: {', '.join(names)}"
            for framework, names in self.replaced.items()
            if names
        )
        line = f"kiln: replaced {replaced or 'nothing'}"
        if self.kept:
            kept = "; ".join(f"{name} ({why})" for name, why in self.kept.items())
            line += f". Not replaced: {kept}"
        if disabled := os.environ.get("KILN_DISABLE"):
            line += f". KILN_DISABLE={disabled}: these kernels' own path is taken"
        return line


def install(*frameworks: str) -> Installation:
    """Lets Kiln's functions stand in for those of frameworks, in this process.

    frameworks: "neox", "apex", "transformer_engine", "liger", "xformers", "triton",
      "cpp_extension". Where two have a module of the same name, the first one's functions are in it.

    Call it before the framework is imported: in a module that was imported before,
    functions are replaced, but not where others have imported them from it. Raises
    InvalidArgument for other names; with KILN_PYTHON_STRICT=1, Unavailable if there is
    no library.
    """
    installation = describe(*frameworks)
    why_not = _why_not()
    if not why_not:
        for framework in frameworks:
            _finder.install(FRAMEWORKS[framework])
    elif is_strict():
        raise errors.Unavailable(why_not)
    else:
        warn_once("kiln.compat", f"kiln stands in for nothing: {why_not}")
    return installation


def describe(*frameworks: str) -> Installation:
    """What install() would replace in this process, and what not. Imports nothing, so a
    function that an installed version lacks is not noticed."""
    unknown = [each for each in frameworks if each not in FRAMEWORKS]
    if unknown or not frameworks:
        raise errors.InvalidArgument(
            f"{', '.join(map(repr, unknown)) or 'nothing'} is none of the frameworks "
            f"that kiln stands in for: {', '.join(FRAMEWORKS)}"
        )
    done = Installation()
    first: dict[str, str] = {}
    for framework in frameworks:
        names = done.replaced.setdefault(framework, [])
        for module in FRAMEWORKS[framework]:
            name, why = _name(module), _why_kept(module)
            if why:
                done.kept[name] = why
            elif set(module.functions) <= set(first.get(module.name, ())):
                pass  # the other framework's
            else:
                names.append(name)
                first[module.name] = {*first.get(module.name, ()), *module.functions}
            for function, reason in module.missing.items():
                done.kept[f"{module.name}.{function}"] = reason
    return done


def _name(module: Module) -> str:
    """As the line has it: an extension is replaced as a whole."""
    if module.kind == REPLACED and len(module.functions) == 1:
        return f"{module.name}.{next(iter(module.functions))}"
    return module.name


def _why_not() -> str:
    """Why nothing can be replaced; empty if it can."""
    path = library_path()
    return "" if path.exists() else f"there is no {path}: install kiln-jit again"


def _why_kept(module: Module) -> str:
    if _why_not():
        return _why_not()
    if module.kind == EXTENSION:
        return ""
    if module.kind == VARIABLE:
        for variable, value in module.functions.items():
            if os.environ.get(variable, value) not in ("", value):
                return f"{variable} is {os.environ[variable]}"
    name = module.loader or module.name
    package = name.partition(".")[0]
    if module.kind == IF_ABSENT:
        is_there = _is_found(package)
        return f"{package} is installed, and calls the replaced functions" if is_there else ""
    if _is_found(name):
        return ""
    if _is_found(package):
        return f"the {package} that is installed has no {name}"
    return f"{package} is not installed"


def _is_found(name: str) -> bool:
    """Whether others than kiln find that module."""
    if name in sys.modules:
        return not _finder.is_kilns(sys.modules[name])
    parts, path = name.split("."), None
    for i in range(len(parts)):
        try:
            spec = _finder.FINDER.own_spec(".".join(parts[: i + 1]), path)
        except (ImportError, ValueError):
            return False
        path = getattr(spec, "submodule_search_locations", None)
        if spec is None or (path is None and i + 1 < len(parts)):
            return False
    return True
