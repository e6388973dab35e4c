"""The extensions of ``torch.utils.cpp_extension``, each built once on a machine into Kiln's cache.

``load`` and ``load_inline`` keep their meaning. A build runs in a private folder, and is killed at a limit
(KILN_EXTENSION_TIMEOUT, 3600 s). Others who want the same extension wait for it no longer than that, whoever
dies, stops or hangs. The key has everything that determines the library: sources, flags, architectures, torch
and Python; the compilers, and all files that they read, are its inputs (kiln.cache.Inputs). So no compiler is
needed where the library is only loaded.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import cache, errors
from .._placed import place
from . import _device_code, _torch_build
from ._own_path import is_strict, warn_once

_TORCH = "torch.utils.cpp_extension"
_ARCHITECTURES = "kiln-architectures"  # of the device code, one a line
# What else compilers and linkers read.
_VARIABLES = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "SOURCE_DATE_EPOCH", "LD_RUN_PATH"),
    *("CCC_OVERRIDE_OPTIONS",),
)
_NOT_HERE = (errors.Unavailable, errors.InvalidArgument, errors.ForkError)


class _Version:
    """Of an extension that this process, or the one that it was forked from, has loaded or is about to load."""

    def __init__(self, number: int, fields: dict[str, Any]):
        self.number = number
        self.fields = fields
        self.key: str | None = None
        self.folder: Path | None = None  # no second copy is loaded: it would define types and operators once more


_versions: dict[str, list[_Version]] = {}  # by the extension's name


class _OwnFolder(str):
    """A build directory that only this call uses. Nobody else writes the sources in it."""

    named = ""  # the build directory that the caller wants


def takes_own(function: Callable) -> Callable:
    """Marks a function that gets torch's own function before the other arguments."""
    function.takes_own = True
    return function


@takes_own
def load(own: Callable, *args: Any, **kwargs: Any) -> Any:
    return _with_folder(own, args, kwargs, _OwnFolder("/kiln/no-build-directory"))


@takes_own
def load_inline(own: Callable, *args: Any, **kwargs: Any) -> Any:
    """torch writes the sources: in a folder of this call those of two programs do not mix."""
    with tempfile.TemporaryDirectory(prefix="kiln-sources-") as folder:
        return _with_folder(own, args, kwargs, _OwnFolder(folder))


def verify_ninja_availability() -> None:
    """Does nothing: DeepSpeed asks for ninja before load(), which may find the library. Builds ask for themselves."""


def _with_folder(own: Callable, args: tuple, kwargs: dict, folder: _OwnFolder) -> Any:
    call = inspect.signature(own).bind(*args, **kwargs)
    given = call.arguments
    is_sycl = given.get("sycl_sources") or given.get("with_sycl")
    if _why_own(given.get("sources") or (), is_sycl, bool(given.get("cuda_sources") or given.get("with_cuda"))):
        return own(*args, **kwargs)  # as torch does it, in the folder of torch's choice
    folder.named = os.fspath(given.get("build_directory") or "")
    if not folder.named or "cpp_sources" in given:
        given["build_directory"] = folder
    if "use_pch" in given:  # a header for one build, in the folder of torch
        given["use_pch"] = False
    return own(*call.args, **call.kwargs)


@takes_own
def jit_compile(own: Callable, *args: Any, **kwargs: Any) -> Any:
    call = inspect.signature(own).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    if given["is_python_module"] and given["is_standalone"]:
        raise ValueError("`is_python_module` and `is_standalone` are mutually exclusive.")
    module = sys.modules[_TORCH]
    given["sources"] = [os.path.abspath(each) for each in given["sources"]]
    if given["with_cuda"] is None:
        given["with_cuda"] = any(map(module._is_cuda_file, given["sources"]))
    try:
        if why := _why_own(given["sources"], given.get("with_sycl"), given["with_cuda"]):
            raise errors.Unavailable(why)
        return _load(module, given)
    except _NOT_HERE as error:
        if is_strict():
            raise
        if not _may_build():
            raise RuntimeError(f"{given['name']}: {error}") from error
        warn_once(
            f"{_TORCH}.{given['name']}", f"kiln does not build the extension {given['name']}; torch does: {error}"
        )
    folder = given["build_directory"]
    if isinstance(folder, _OwnFolder):
        theirs = folder.named or module._get_build_directory(given["name"], given["verbose"])
        for i, source in enumerate(given["sources"]):
            if source.startswith(f"{folder}/"):  # of load_inline, where torch finds it by one path on every start
                given["sources"][i] = os.path.join(theirs, os.path.basename(source))
                place(source, given["sources"][i])
        given["build_directory"] = theirs
    return own(**given)


def _may_build() -> bool:
    """False with KILN_NO_JIT, which is also for torch."""
    try:
        return cache.builds()
    except errors.Error:
        return True


def _why_own(sources: Any, with_sycl: Any, with_cuda: bool) -> str:
    """Why torch itself builds them; "": Kiln does."""
    module = sys.modules[_TORCH]
    sources = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    if module.IS_HIP_EXTENSION:
        return "it is for ROCm"
    if with_sycl or any(os.path.splitext(each)[1] == ".sycl" for each in sources):
        return "it is for SYCL"
    with_cuda = with_cuda or any(map(module._is_cuda_file, sources))
    if with_cuda and os.environ.get("TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES", "0") == "1":
        return "nvcc does not say which headers it reads: unset TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"
    return ""


def _load(module: Any, given: dict[str, Any]) -> Any:
    """Each version that one process loads gets a name of its own, as in torch: "ext", "ext_v1"."""
    first = _Extension(module, given, 0)
    if given["is_standalone"]:
        return first.delivered(first.files())
    versions = _versions.setdefault(given["name"], [])
    for version in list(versions):
        if version.fields == first.fields:
            extension = _Extension(module, given, version.number) if version.number else first
            files = cache.get(extension.fields) if version.key else extension.files()
            if files and version.key in (None, files.key):
                return extension.imported(files, version)
    version = _Version(versions[-1].number + 1 if versions else 0, first.fields)
    versions.append(version)
    try:
        extension = _Extension(module, given, version.number) if version.number else first
        return extension.imported(extension.files(), version)
    finally:
        if version.key is None:  # nothing was loaded under its name
            versions.remove(version)


class _Extension:
    """One version of it, with all that determines its library but its inputs."""

    def __init__(self, module: Any, given: dict[str, Any], version: int):
        self.module = module
        self.given = given | {"name": f"{given['name']}_v{version}"} if version else given
        self.name = self.given["name"]
        self.verbose = given["verbose"]
        folder = given["build_directory"]
        self.named = folder.named if isinstance(folder, _OwnFolder) else os.fspath(folder)
        # Sources in it are built in the build's folder, by their names alone.
        self.own_folder = f"{folder}/" if isinstance(folder, _OwnFolder) else "\0"
        suffix = module.EXEC_EXT if given["is_standalone"] else module.LIB_EXT
        self.library = f"{self.name}{suffix}"
        self._check_architectures()
        self.toolkit = self._toolkit()
        self.text = _torch_build.compose(module, self.given, self.toolkit, self.own_folder)
        self.sources = {path: Path(path).read_bytes() for path in given["sources"]}
        self.fields = self._fields(self.text, self.toolkit, self.sources)

    def imported(self, files: cache.Files, version: _Version) -> Any:
        """What torch's function returns of a library."""
        self.delivered(files)
        if version.folder is None:
            version.key, version.folder = files.key, files.folder
        return self.module._import_module_from_library(self.name, str(version.folder), self.given["is_python_module"])

    def delivered(self, files: cache.Files) -> str:
        """The path of the library or program, with a copy in the build directory that the caller named.

        Raises RuntimeError for device code that fails on a device here.
        """
        if self.verbose:
            print(f"kiln: extension {self.name}: {files.outcome}, {files[self.library]}", file=sys.stderr)
        if files.not_stored:
            print(f"kiln: extension {self.name} is not stored: {files.not_stored}", file=sys.stderr)
        is_placed = self.named and self._place(files)
        if _ARCHITECTURES in files:
            known = Path(files[_ARCHITECTURES]).read_text().split()
            _device_code.check(f"the extension {self.name}", files[self.library], known)
        return os.path.join(self.named, self.library) if is_placed else files[self.library]

    def files(self) -> cache.Files:
        files = cache.build_once(
            self.fields,
            self._build,
            timeout=_timeout(),
            name=self.name[:64],
            tool=f"torch-{_torch_version()}",
            sources=[_torch_build.NINJA_FILE],
        )
        if files.outcome == "compiled" and self.given["with_cuda"]:
            with contextlib.suppress(errors.Error):  # the library is there; only a node without a toolkit misses this
                cache.put(self._fields_of_toolkit(), {"toolkit": self.toolkit}, name=f"{self.name[:64]} (toolkit)")
        return files

    def _toolkit(self) -> str:
        """The folder of nvcc; where there is none, that of the node that has built this extension."""
        named = str(self.module.CUDA_HOME or "").rstrip("/")
        if not self.given["with_cuda"] or os.path.exists(f"{named}/bin/nvcc"):
            return named or _torch_build.NO_TOOLKIT
        found = cache.get(self._fields_of_toolkit())
        return Path(found["toolkit"]).read_text() if found else named or _torch_build.NO_TOOLKIT

    def _fields_of_toolkit(self) -> dict[str, Any]:
        nowhere = _torch_build.NO_TOOLKIT
        text = _torch_build.compose(self.module, self.given, nowhere, self.own_folder)
        return {"of": "toolkit", "name": self.name, **self._fields(text, nowhere, {})}

    def _check_architectures(self) -> None:
        listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "native") or "native"
        if not self.given["with_cuda"] or listed != "native":
            return
        flags = [flag for flag in self.given["extra_cuda_cflags"] or () if "TORCH_EXTENSION_NAME" not in flag]
        # torch 2.6 does not look at them.
        are_read = "_get_cuda_arch_flags()" not in inspect.getsource(self.module._write_ninja_file_to_build_library)
        is_named = are_read and any("arch" in flag for flag in flags)
        if not is_named and sys.modules["torch"].cuda.device_count() == 0:
            raise RuntimeError(
                f"the extension {self.name} has device code, and there is no GPU here to tell the architecture: "
                "set TORCH_CUDA_ARCH_LIST to the architectures of the GPUs that will run it, such as "
                'TORCH_CUDA_ARCH_LIST="8.0;9.0"'
            )

    def _fields(self, text: str, toolkit: str, sources: dict[str, bytes]) -> dict[str, Any]:
        torch = sys.modules["torch"]
        fields = {
            "program": _TORCH,
            "build": _torch_build.for_key(text, toolkit),
            "torch": f"{_torch_version()} {torch.version.git_version} {torch.compiled_with_cxx11_abi()}",
            **cache.machine_fields(),
        }
        variables = {name: value for name in _VARIABLES if (value := os.environ.get(name))}
        if any("native" in each for each in (text, *variables.values())):  # -march=native, -arch=native
            fields["cpu"] = _cpu()
            fields["devices"] = " ".join(sorted(_device_code.devices() or ()))
        for i, content in enumerate(sources.values()):
            fields[f"source {i}"] = content
        return fields | variables

    def _build(self, folder: Path, run: cache.Run) -> cache.Inputs:
        if not self.module.is_ninja_available():
            raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")
        self.module.get_compiler_abi_compatibility_and_version(self.module.get_cxx_compiler())
        for path, content in self.sources.items():
            if path.startswith(self.own_folder):
                (folder / path.removeprefix(self.own_folder)).write_bytes(content)
        print(f"kiln: building the extension {self.name}", file=sys.stderr, flush=True)
        _torch_build.run_ninja(self.name, self.text, folder, run, is_shown=self.verbose)
        inputs = _torch_build.inputs(self.text, folder, run)
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in (self.library, _torch_build.NINJA_FILE):
                path.unlink()
        if self.given["with_cuda"]:
            known = _device_code.architectures(folder / self.library)
            (folder / _ARCHITECTURES).write_text("".join(f"{each}\n" for each in known))
        # Those whose contents are in the key and have stayed, however young their files are.
        same = {path for path, content in self.sources.items() if Path(path).read_bytes() == content}
        return cache.Inputs([each for each in inputs.files if each not in same], inputs.tools)

    def _place(self, files: cache.Files) -> bool:
        """Copies the library to where the caller looks for it. This process loads another copy."""
        own = [path for path in self.given["sources"] if path.startswith(self.own_folder)]
        placed = [files[name] for name in (self.library, _torch_build.NINJA_FILE) if name in files]
        try:
            for path in (*own, *placed):
                place(path, os.path.join(self.named, os.path.basename(path)))
        except OSError as error:
            print(f"kiln: extension {self.name} is not in {self.named}: {error}", file=sys.stderr)
            return False
        return True


def _torch_version() -> str:
    return str(sys.modules["torch"].__version__)


def _timeout() -> float:
    value = os.environ.get("KILN_EXTENSION_TIMEOUT") or "3600"
    with contextlib.suppress(ValueError):
        if 0 < float(value) < math.inf:
            return float(value)
    raise RuntimeError(f"KILN_EXTENSION_TIMEOUT is {value!r}, and not a number of seconds above 0")


def _cpu() -> str:
    """What -march=native depends on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
