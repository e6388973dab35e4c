"""The finder on sys.meta_path that gives frameworks Kiln's functions.

It provides the extension modules that a framework would build, whether or not they
were built, and replaces functions of Python modules when these have been imported. It
imports neither torch nor a framework: whoever imports one of the modules does.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec

from ._own_path import guarded, warn_once
from ._table import EXTENSION, IF_ABSENT, REPLACED, VARIABLE, Module


@dataclass
class Entry:
    """What is installed of a module, maybe for several frameworks: the first one's
    function stays."""

    name: str
    kind: str
    functions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, module: Module) -> None:
        self.functions = {**module.functions, **self.functions}
        self.missing = {**module.missing, **self.missing}


class Finder:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.packages: set[str] = set()  # of modules IF_ABSENT

    def add(self, module: Module) -> None:
        entry = self.entries.setdefault(module.name, Entry(module.name, module.kind))
        entry.add(module)
        if module.kind == IF_ABSENT:
            parts = module.name.split(".")
            self.packages.update(".".join(parts[:i]) for i in range(1, len(parts)))

    def find_spec(self, name, path=None, target=None):
        entry = self.entries.get(name)
        if entry is None and name not in self.packages:
            return None
        if entry is not None and entry.kind == EXTENSION:
            return ModuleSpec(name, _Loader(entry))
        spec = self.own_spec(name, path, target)
        if entry is not None and entry.kind == REPLACED:
            if spec is not None and spec.loader is not None:
                self._replace_after(spec.loader)
            return spec
        if spec is not None:  # the framework is installed
            return None
        if entry is not None:
            return ModuleSpec(name, _Loader(entry))
        return ModuleSpec(name, _PackageLoader(self), is_package=True)

    def own_spec(self, name, path=None, target=None):
        """What the others find."""
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            if (spec := find(name, path, target)) is not None:
                return spec
        return None

    def _replace_after(self, loader) -> None:
        run = loader.exec_module

        def exec_module(module):
            run(module)
            self.replace_loaded(module)

        loader.exec_module = exec_module  # of this import's loader alone

    def replace_loaded(self, complete=None) -> None:
        """In each module that is imported already, ``complete`` among them.
        TransformerEngine imports its extension past sys.meta_path: it is noticed when
        one of its Python modules has been imported."""
        for entry in self.entries.values():
            module = sys.modules.get(entry.name)
            spec = getattr(module, "__spec__", None)
            if module is None or entry.kind == IF_ABSENT or is_kilns(module):
                continue
            if module is not complete and getattr(spec, "_initializing", False):
                continue  # its own turn comes
            why = ""
            try:
                _replace(module, entry)
            except ImportError as error:
                why = str(error)
            names = entry.functions
            if module is complete and names and not any(_there(module, n) for n in names):
                why = f"it has no {' and no '.join(names)}"
            if why:
                warn_once(entry.name, f"{entry.name} stays as it is: {why}")


def is_kilns(module) -> bool:
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    return isinstance(loader, (_Loader, _PackageLoader))


def _there(module, name):
    """What ``name`` is in, and what it is; "Class.apply" is of an autograd function that
    the module has. None: this version has none."""
    owner, _, attribute = name.rpartition(".")
    place = getattr(module, owner, None) if owner else module
    original = getattr(place, attribute, None)
    return None if original is None else (place, attribute, original)


def _replace(module, entry: Entry) -> None:
    for name, where in entry.functions.items():
        place, attribute, original = _there(module, name) or (None, "", None)
        if original is None or getattr(original, "is_of_kiln", False):
            continue  # a version without it; it was replaced before
        ours = provided(entry.name, name, where, lambda o=original: o)
        is_method = place is not module
        if _takes_what(place.forward if is_method else original, ours, is_method):
            setattr(place, attribute, staticmethod(ours) if is_method else ours)
        else:
            full = f"{entry.name}.{name}"
            warn_once(full, f"{full} stays as it is: kiln does not know its parameters")


def _takes_what(original, ours, has_context=False) -> bool:
    """Whether ``ours`` has the parameters of ``original``, as far as these are known: a
    framework's next version may have others. has_context: behind the first."""
    import inspect  # torch has imported it

    try:
        theirs = list(inspect.signature(original).parameters.values())[has_context:]
    except (TypeError, ValueError):  # of an extension
        return True
    known = list(inspect.signature(ours).parameters.values())
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in theirs):
        return True
    if any(each.kind == each.VAR_KEYWORD for each in known):
        return True
    names, by_name = (
        [each.name for each in theirs if (each.kind == each.KEYWORD_ONLY) == by_name]
        for by_name in (False, True)
    )
    ours = [each.name for each in known]
    return names == ours[: len(names)] and set(by_name) <= set(ours)


def provided(module: str, name: str, where: str, original):
    """The function or class ``where`` of kiln.compat, for ``module.name``."""
    file, _, ours = where.partition(".")
    value = getattr(importlib.import_module(f"{__package__}.{file}"), ours)
    if isinstance(value, type):
        return value
    if getattr(value, "takes_own", False):
        own = original()
        value = functools.update_wrapper(functools.partial(value, own), own)
    return guarded(f"{module}.{name}", value, original)


class _Loader(importlib.abc.Loader):
    """Makes a module of Kiln's functions."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    def exec_module(self, module) -> None:
        entry = self.entry

        def attribute(name):
            original = functools.partial(_original, entry.name, name)
            if name in entry.functions:
                value = provided(entry.name, name, entry.functions[name], original)
                setattr(module, name, value)
                return value
            if not name.startswith("__") and (own := original()) is not None:
                return own
            why = entry.missing.get(name, "kiln does not provide it")
            raise AttributeError(f"module '{entry.name}' has no '{name}': {why}")

        module.__doc__ = f"{entry.name}, by Kiln."
        module.__getattr__ = attribute
        for name in entry.functions:
            attribute(name)


class _PackageLoader(importlib.abc.Loader):
    """An empty package, for the modules that it has."""

    def __init__(self, finder: Finder) -> None:
        self.finder = finder

    def exec_module(self, module) -> None:
        package = module.__name__

        def submodule(name):
            full = f"{package}.{name}"
            if full in self.finder.entries or full in self.finder.packages:
                return importlib.import_module(full)
            raise AttributeError(
                f"package '{package}' is not installed, and kiln provides no '{name}'"
            )

        module.__doc__ = f"{package}: the part that Kiln provides."
        module.__getattr__ = submodule


@functools.cache
def _original_module(name: str):
    spec = FINDER.own_spec(name)
    if spec is None or spec.loader is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:  # it was built for another torch, or for another Python
        return None
    return module


def _original(module: str, name: str):
    """The function of the extension that Kiln's stands before; None: there is none."""
    return getattr(_original_module(module), name, None)


FINDER = Finder()


def install(modules) -> None:
    """Makes imports find these modules; replaces in those that are imported already."""
    for module in modules:
        if module.kind == VARIABLE:
            for name, value in module.functions.items():
                os.environ[name] = os.environ.get(name) or value
        else:
            FINDER.add(module)
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    FINDER.replace_loaded()
