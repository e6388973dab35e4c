"""Kiln compiles CUDA kernels when they are needed, once for each GPU architecture, and keeps them.

``kiln.ops`` has the operations of LLM training for PyTorch, ``kiln.jax`` some of them for JAX, and
``kiln.Kernel`` is a kernel from a source of your own. Importing kiln opens nothing and starts nothing:
the service, its cache and the CUDA driver are opened by the first call that needs them, with the
settings of :func:`kiln.configure`.
"""

from __future__ import annotations

import importlib

from kiln._version import __version__

TYPE_CHECKING = False  # true to type checkers; typing takes most of an import's time

# The public names of each module, which is imported at the first use of one of them.
_NAMES = {
    "errors": "Cancelled CompileFailed Corrupt DeviceError Error ForkError InvalidArgument IoError NotFound"
    " ResourceLimit Timeout Unavailable Untrusted WorkerCrashed",
    "kernel": "Kernel Module",
    "service": "Device Setting configure devices settings statistics",
    "_warm": "Packed Unpacked Warmed Why pack unpack warm why",
    "_explain": "Explanation explain",
    "_package_sources": "package_source",
    "_prepare": "prepare",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_SUBMODULES = ("cache", "compat", "errors", "jax", "ops", "testing")

__all__ = ["__version__", *sorted(_MODULES), *_SUBMODULES]

if TYPE_CHECKING:
    from . import cache, compat, errors, jax, ops, testing
    from ._explain import Explanation, explain
    from ._package_sources import package_source
    from ._prepare import prepare
    from .errors import (
        Cancelled,
        CompileFailed,
        Corrupt,
        DeviceError,
        Error,
        ForkError,
        InvalidArgument,
        IoError,
        NotFound,
        ResourceLimit,
        Timeout,
        Unavailable,
        Untrusted,
        WorkerCrashed,
    )
    from .kernel import Kernel, Module
    from .service import Device, Setting, configure, devices, settings, statistics
    from ._warm import Packed, Unpacked, Warmed, Why, pack, unpack, warm, why


def __getattr__(name: str):
    if name in _MODULES:
        module = importlib.import_module("." + _MODULES[name], __name__)
        value = getattr(module, name)
    elif name in _SUBMODULES:
        value = importlib.import_module("." + name, __name__)
    else:
        raise AttributeError(f"module 'kiln' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
