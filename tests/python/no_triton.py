"""Lets a framework be imported where there is no Triton: none of its own kernels can run then."""

import importlib.abc
import importlib.machinery
import sys
import types


class _Anything(types.ModuleType):
    """A module, a decorator, a type: whatever the import of a kernel wants."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("JITFunction", "Autotuner"):  # torch asks what is one
            return type(name, (), {})
        return _Anything(name)

    def __call__(self, *args, **kwargs):
        first = args[0] if len(args) == 1 and not kwargs else None
        return first if isinstance(first, types.FunctionType) else _Anything("called")

    def __getitem__(self, grid):
        raise RuntimeError("there is no Triton here: the framework's own kernel cannot run")

    __gt__ = __lt__ = __getitem__  # of the size of a block

    def __mro_entries__(self, bases):
        return (object,)

    def __iter__(self):
        return iter(())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = _Anything(spec.name)
        module.__version__ = "3.9.0"
        return module

    def exec_module(self, module):
        pass


def stand_in(*packages):
    """For Triton, or for the packages that are named, which are imported and not used."""
    if "triton" not in sys.modules:
        sys.meta_path.insert(0, _Finder(packages or ("triton",)))
