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
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import cache, errors
from .._library import library
from . import _device_code

_TORCH = "torch.utils.cpp_extension"
_NINJA_FILE, _OUTPUT, _LINKED = "build.ninja", "kiln-output", "kiln-linked"
_ARCHITECTURES = "kiln-architectures"  # of the device code, one a line
_NO_TOOLKIT = "/kiln/no-cuda-home"

_LINK = "command = $cxx $in $ldflags -o $out"
_DEPENDENCIES = "$cxx -MMD -MF $out.d"
_PARTS_OF_GCC = ("cc1plus", "collect2", "as", "ld")
_PARTS_OF_NVCC = ("cudafe++", "fatbinary", "nvlink", "ptxas", "../nvvm/bin/cicc")
# What else compilers and linkers read.
_VARIABLES = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "SOURCE_DATE_EPOCH"),
)

_torch_lock = threading.RLock()  # held while a variable of torch's module is another


class _OwnFolder(str):
    """In the place of a build directory. Sources in it are this call's, and nobody else sees it."""

    named = ""  # the directory that the caller has named


def takes_own(function: Callable) -> Callable:
    """Its first argument is torch's own function."""
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


def _with_folder(own: Callable, args: tuple, kwargs: dict, folder: _OwnFolder) -> Any:
    call = inspect.signature(own).bind(*args, **kwargs)
    given = call.arguments
    is_sycl = given.get("sycl_sources") or given.get("with_sycl")
    if _why_own(given.get("sources") or (), is_sycl, bool(given.get("cuda_sources") or given.get("with_cuda"))):
        return own(*args, **kwargs)  # as torch does it, in the folder of torch's choice
    folder.named = os.fspath(given.get("build_directory") or "")
    if not folder.named or "cpp_sources" in given:
        given["build_directory"] = folder
    if "use_pch" in given:  # a header for one build alone, in the folder of torch
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
    if why := _why_own(given["sources"], given.get("with_sycl"), given["with_cuda"]):
        raise errors.Unavailable(why)
    given["with_sycl"] = False
    return _Extension(module, given).loaded()


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


class _Extension:
    def __init__(self, module: Any, given: dict[str, Any]):
        self.module = module
        self.given = given
        self.name = given["name"]
        self.verbose = given["verbose"]
        folder = given["build_directory"]
        self.named = folder.named if isinstance(folder, _OwnFolder) else os.fspath(folder)
        # Sources in it are built in the build's folder, by their names alone.
        self.own_folder = f"{folder}/" if isinstance(folder, _OwnFolder) else "\0"
        suffix = module.EXEC_EXT if given["is_standalone"] else module.LIB_EXT
        self.library = f"{self.name}{suffix}"

    def loaded(self) -> Any:
        """What torch's function returns."""
        files = self._files()
        if self.verbose:
            print(f"kiln: extension {self.name}: {files.outcome}, {files[self.library]}", file=sys.stderr)
        if files.not_stored:
            print(f"kiln: extension {self.name} is not stored: {files.not_stored}", file=sys.stderr)
        if self.named:
            self._place(files)
        if _ARCHITECTURES in files:
            known = Path(files[_ARCHITECTURES]).read_text().split()
            _device_code.check(f"the extension {self.name}", files[self.library], known)
        if self.given["is_standalone"]:
            return files[self.library]
        return self.module._import_module_from_library(self.name, str(files.folder), self.given["is_python_module"])

    def _files(self) -> cache.Files:
        self._check_architectures()
        text = self._ninja_text()
        sources = {path: Path(path).read_bytes() for path in self.given["sources"]}
        try:
            return cache.build_once(
                self._fields(text, sources),
                lambda folder, run: self._build(folder, run, text, sources),
                timeout=_timeout(),
                name=self.name[:64],
                tool=f"torch-{_torch_version()}",
                sources=[_NINJA_FILE],
            )
        except errors.Unavailable as error:
            if not library().files_builds():  # torch may not build it, either
                raise RuntimeError(str(error)) from error
            raise

    def _check_architectures(self) -> None:
        named = [flag for flag in self.given["extra_cuda_cflags"] or () if "TORCH_EXTENSION_NAME" not in flag]
        listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "native") or "native"
        if not self.given["with_cuda"] or any("arch" in flag for flag in named) or listed != "native":
            return
        if sys.modules["torch"].cuda.device_count() == 0:
            raise RuntimeError(
                f"the extension {self.name} has device code, and there is no GPU here whose architecture it could "
                "be built for: set TORCH_CUDA_ARCH_LIST to those of the GPUs that will run it, such as "
                'TORCH_CUDA_ARCH_LIST="8.0;9.0"'
            )

    def _ninja_text(self) -> str:
        """Every command of the build, as torch writes them. The toolkit need not be there."""
        module, values = (
            self.module,
            {key: value or [] for key, value in self.given.items() if key.startswith("extra_")},
        )
        values |= {key: self.given[key] for key in ("name", "sources", "with_cuda", "with_sycl", "is_standalone")}
        values["verbose"] = self.verbose
        with _torch_lock, tempfile.TemporaryDirectory(prefix="kiln-ninja-") as folder:
            toolkit, module.CUDA_HOME = module.CUDA_HOME, module.CUDA_HOME or _NO_TOOLKIT
            try:
                values["extra_ldflags"] = _call(
                    module._prepare_ldflags, {**values, "extra_ldflags": list(values["extra_ldflags"])}
                )
                values["path"] = os.path.join(folder, _NINJA_FILE)
                _call(module._write_ninja_file_to_build_library, values)
            finally:
                module.CUDA_HOME = toolkit
            text = Path(values["path"]).read_text()
        text = text.replace(self.own_folder, "")
        is_known = _LINK in text and _DEPENDENCIES in text
        _, is_cuda, rule = text.partition("rule cuda_compile")
        if not is_known or (is_cuda and "depfile" not in rule.partition("rule ")[0]):
            raise errors.Unavailable(f"the builds of torch {_torch_version()} are not known to kiln")
        return text

    def _fields(self, text: str, sources: dict[str, bytes]) -> dict[str, Any]:
        toolkit = re.escape(self.module.CUDA_HOME or _NO_TOOLKIT)
        build = re.sub(r"^(cxx|nvcc) = s?ccache ", r"\1 = ", text, flags=re.MULTILINE)
        build = re.sub(f"{toolkit}/lib(64)?(?=[ /\n])", "{CUDA_HOME}/lib", build)
        torch = sys.modules["torch"]
        fields = {
            "program": _TORCH,
            "build": re.sub(f"{toolkit}(?=[ /\n])", "{CUDA_HOME}", build),
            "torch": f"{_torch_version()} {torch.version.git_version} {torch.compiled_with_cxx11_abi()}",
            **cache.machine_fields(),
        }
        for i, content in enumerate(sources.values()):
            fields[f"source {i}"] = content
        return fields | {name: value for name in _VARIABLES if (value := os.environ.get(name))}

    def _build(self, folder: Path, run: cache.Run, text: str, sources: dict[str, bytes]) -> cache.Inputs:
        self.module.verify_ninja_availability()
        self.module.get_compiler_abi_compatibility_and_version(self.module.get_cxx_compiler())
        for path, content in sources.items():
            if path.startswith(self.own_folder):
                (folder / path.removeprefix(self.own_folder)).write_bytes(content)
        build = text.replace(_DEPENDENCIES, _DEPENDENCIES.replace("-MMD", "-MD"))
        build = build.replace(_LINK, f"{_LINK} -Wl,--trace > {_LINKED}")
        (folder / _NINJA_FILE).write_text(build)
        print(f"kiln: building the extension {self.name}", file=sys.stderr, flush=True)
        self._run_ninja(folder, run, text)
        files = _dependencies(run(["ninja", "-t", "deps"])) + _linked(folder)
        inputs = cache.Inputs(files, _tools(text, run))
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in (self.library, _NINJA_FILE):
                path.unlink()
        if self.given["with_cuda"]:
            known = _device_code.architectures(folder / self.library)
            (folder / _ARCHITECTURES).write_text("".join(f"{each}\n" for each in known))
        return inputs

    def _run_ninja(self, folder: Path, run: cache.Run, text: str) -> None:
        jobs = os.environ.get("MAX_JOBS", "")
        command = ["ninja", "-v", *(["-j", jobs] if jobs.isdigit() else [])]
        output = folder / _OUTPUT
        try:
            with _shown(output) if self.verbose else contextlib.nullcontext():
                run(["/bin/sh", "-c", f'exec "$@" > {_OUTPUT} 2>&1', "sh", *command])
        except errors.Error as error:
            told = output.read_text(errors="replace") if output.exists() else ""
            if isinstance(error, errors.CompileFailed):
                raise errors.CompileFailed(
                    f"Error building extension '{self.name}': {told or error.log}", told
                ) from None
            left = [each for each in re.findall(r"^build (\S+): ", text, re.MULTILINE) if not (folder / each).exists()]
            message = f"the extension {self.name} was not built, {', '.join(left)} not yet: {error}"
            raise type(error)(
                f"{message} (KILN_EXTENSION_TIMEOUT is the limit in seconds); output so far:\n{told}"
            ) from None

    def _place(self, files: cache.Files) -> None:
        """Where the caller looks for them. Nobody loads them from there."""
        own = [path for path in self.given["sources"] if path.startswith(self.own_folder)]
        try:
            os.makedirs(self.named, exist_ok=True)
            placed = [files[name] for name in (self.library, _NINJA_FILE) if name in files]
            for path in (*own, *placed):
                _replace(os.path.join(self.named, os.path.basename(path)), Path(path).read_bytes())
        except OSError as error:
            print(f"kiln: extension {self.name} is not in {self.named}: {error}", file=sys.stderr)


def _call(function: Callable, values: dict[str, Any]) -> Any:
    """With those that this version of torch takes."""
    return function(**{name: values[name] for name in inspect.signature(function).parameters})


def _torch_version() -> str:
    return str(sys.modules["torch"].__version__)


def _timeout() -> float:
    value = os.environ.get("KILN_EXTENSION_TIMEOUT") or "3600"
    try:
        return float(value)
    except ValueError:
        raise RuntimeError(f"KILN_EXTENSION_TIMEOUT is {value!r}, and not a number of seconds") from None


@contextlib.contextmanager
def _shown(path: Path) -> Iterator[None]:
    """What is written there appears on stdout meanwhile."""
    ended = threading.Event()

    def show() -> None:
        at = 0
        while True:
            is_last = ended.wait(0.1)
            if path.exists():
                with open(path, "rb") as file:
                    file.seek(at)
                    content = file.read()
                at += len(content)
                os.write(1, content)  # where torch's own builds write
            if is_last:
                return

    sys.stdout.flush()
    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _dependencies(told: str) -> list[str]:
    """Of ``ninja -t deps``: an indented path a line, below each object."""
    return [line.strip() for line in told.splitlines() if line.startswith("    ")]


def _linked(folder: Path) -> list[str]:
    """What is copied into the library, of what the linker names: not shared libraries."""
    named: set[str] = set()
    for line in (folder / _LINKED).read_text(errors="replace").splitlines():
        named.update(re.split(r"[()\s]+", line))
    is_shared = re.compile(r"\.so(\.\d+)*$")
    return [each for each in named if each.startswith("/") and not is_shared.search(each) and os.path.isfile(each)]


def _words(command: str) -> list[str]:
    """Without the name of a compiler's cache, which may be absent on another node."""
    words = shlex.split(command)
    return words[1:] if words and os.path.basename(words[0]) in ("ccache", "sccache") else words


def _tools(text: str, run: cache.Run) -> list[str]:
    """The programs that a build starts."""
    command = dict(re.findall(r"^(cxx|nvcc) = (.*)$", text, re.MULTILINE))
    tools: list[str] = []
    compilers = [_words(command["cxx"])]
    if nvcc := _words(command.get("nvcc", "")):
        tools += [word for word in nvcc if not word.startswith("-")]
        folder = os.path.dirname(os.path.realpath(shutil.which(nvcc[-1]) or nvcc[-1]))
        tools += filter(os.path.exists, (os.path.normpath(os.path.join(folder, part)) for part in _PARTS_OF_NVCC))
        compilers.append([os.environ.get("NVCC_CCBIN") or os.environ.get("CC") or "gcc"])
    for compiler in compilers:
        tools += [word for word in compiler if not word.startswith("-")]
        for part in _PARTS_OF_GCC:
            with contextlib.suppress(errors.CompileFailed):  # another compiler
                tools.append(run([*compiler, f"-print-prog-name={part}"]).strip())
    return [tool for tool in tools if tool]


def _replace(path: str, content: bytes) -> None:
    """At once, for those who read it meanwhile."""
    with contextlib.suppress(OSError):
        if Path(path).read_bytes() == content:
            return
    new = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        Path(new).write_bytes(content)
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
