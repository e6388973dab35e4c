"""Opens libkiln_ffi.so at its first use, and maps its errors to kiln.errors."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
from pathlib import Path

from . import errors
from ._seeds import seeds


def library_path() -> Path:
    """The library of this package; in a build tree, KILN_FFI_LIBRARY names it."""
    named = os.environ.get("KILN_FFI_LIBRARY")
    if named:
        return Path(named).absolute()
    return Path(__file__).absolute().parent / "lib" / "libkiln_ffi.so"


def program_path() -> Path:
    """The kiln program, in ``bin`` beside the library's folder."""
    program = library_path().parent.parent / "bin" / "kiln"
    if not program.exists():
        raise errors.Unavailable(f"there is no {program}: install the package kiln-jit again")
    return program


def kit_folder() -> str:
    """The test kit: KILN_TEST_KIT names it, or the package kiln-jit-testing has it; "" for neither."""
    named = os.environ.get("KILN_TEST_KIT", "")
    if named or importlib.util.find_spec("kiln_jit_testing") is None:
        return named
    import kiln_jit_testing

    return str(kiln_jit_testing.FOLDER)


def _import_tvm_ffi():
    # With a torch before 2.10, tvm_ffi compiles an extension of its own while it is imported, which
    # takes a minute and a host compiler. Without that extension a call takes some microseconds more.
    if "tvm_ffi" not in sys.modules and importlib.util.find_spec("torch_c_dlpack_ext") is None:
        if importlib.util.find_spec("torch") is not None:  # which tvm_ffi imports, too
            import torch

            if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
                os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")
    import tvm_ffi

    return tvm_ffi


class _WithSignals:
    """The module with a tvm_ffi before 0.1.9, which does not know by which error a call says that a
    signal's handler has raised: it raises a SystemError because of that exception."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name: str):
        function = getattr(self._module, name)

        @functools.wraps(function)
        def call(*args):
            try:
                return function(*args)
            except SystemError as error:
                raise error.__cause__ or error from None

        setattr(self, name, call)
        return call


configured: dict[str, str] = {}  # by the setting's name: what configure() was given


def settings() -> list[str]:
    """What the service and the cache for files are opened with: "NAME=VALUE", of which the last holds."""
    offered = seeds()
    of_packages = [f"seeds={':'.join(offered)}"] if offered else []
    return of_packages + [f"{name}={value}" for name, value in configured.items()]


class _Loading:
    """The lock of the thread that opens the library; a forked child has a new one."""

    lock = threading.RLock()

    @classmethod
    def renew(cls):
        cls.lock = threading.RLock()


os.register_at_fork(after_in_child=_Loading.renew)


@functools.cache
def library():
    """The module with the functions that python/ffi exports. Opens no service."""
    with _Loading.lock:  # a second thread would configure a service that is open by then
        return _opened()


@functools.cache
def _opened():
    path = library_path()
    if not path.exists():
        raise errors.Unavailable(f"there is no {path}: install the package kiln-jit, or set KILN_FFI_LIBRARY")
    tvm_ffi = _import_tvm_ffi()
    for each in errors.CLASSES:
        tvm_ffi.register_error(f"kiln.{each.__name__}", each)
    tvm_ffi.register_error("kiln.CompileFailed+log", errors.CompileFailedFromText)
    module = tvm_ffi.load_module(str(path))
    if [int(part) for part in tvm_ffi.__version__.split(".")[:3]] < [0, 1, 9]:
        module = _WithSignals(module)
    if chosen := settings():
        module.configure(chosen)
    return module


def parameters(function: str, *known: str) -> list[str]:
    """The names of what the library's function takes behind action and device, in order.

    Raises TypeError where they are not those ``known``; the library may lack "workspace".
    """
    names = [str(each) for each in library().parameters(function)]
    if wrong := set(names).symmetric_difference(known) - ({"workspace"} - set(names)):
        lacking = ", ".join(sorted(wrong))
        raise TypeError(
            f"{function}: Python and {library_path()} do not both know {lacking}; take both "
            "from one version of kiln-jit"
        )
    return names


def enumerators(enumeration: str) -> dict[str, int]:
    """The words of an enumeration of kiln/ops, "attention_bias", and their values."""
    words = str(library().enumerators(enumeration)).split()
    return {word: value for value, word in enumerate(words) if word != "unset"}
