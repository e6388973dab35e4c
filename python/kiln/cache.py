"""Files of other programs in Kiln's cache: found like kernels, or built once on a machine.

    from kiln import cache

    def build(folder, run):
        (folder / "adder.cu").write_text(source)
        run(["nvcc", "-shared", "-o", "adder.so", "adder.cu"])

    adder = cache.build_once({"source": source, "nvcc": version}, build, timeout=300, name="adder")
    ctypes.CDLL(adder["adder.so"])

The files lie in a folder of this process, which nobody else writes, until it ends. They are verified
on every read, and packed, signed, pushed, listed and cleared by the kiln program like kernels. A
process that is forked from one that has used this can get() and put(); it cannot build.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Union

from . import _files, errors
from ._files import builds, new_folder  # noqa: F401  for kiln.triton and kiln.compat
from ._given import text

__all__ = ["Files", "Inputs", "build_once", "get", "put", "remove"]

Bytes = Union[str, bytes, bytearray, memoryview]


class Files(Mapping[str, str]):
    """Files in a folder: the path of each by its name.

    ``key`` has 64 hex digits; ``outcome`` is "hit", "compiled" (this call stored them), "waited" (another
    built them meanwhile), "seed" or "remote". ``not_stored`` says why they are not in the cache; "": they are.
    """

    def __init__(self, found: _files.Found):
        self.key, folder, names, self.outcome, self.not_stored = found
        self.folder = Path(folder)
        self._paths = {name: f"{folder}/{name}" for name in names}

    def __getitem__(self, name: str) -> str:
        return self._paths[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"Files({', '.join(self)}; key {self.key[:12]}, {self.outcome}, in {self.folder})"


@dataclass(frozen=True)
class Inputs:
    """What a build has read and no field names.

    files: paths, such as the headers in a compiler's dependency file. Those in the build's folder are ignored.
    tools: the compilers that it starts, by path or by a name that is looked for in PATH.

    ELF files are known by their build id, all others by their content. The result is found only where each
    input is as it was. A machine without one of the tools cannot build: there the tools, and files that are
    absent, count as they were. An input that changes while the files are
    built, or just before, keeps them out of the cache.
    """

    files: Iterable[str | os.PathLike] = ()
    tools: Iterable[str | os.PathLike] = ()


class Run(Protocol):
    """What ``build`` starts programs with."""

    def __call__(self, command: Sequence[str | os.PathLike], env: Mapping[str, str] | None = None) -> str:
        """Runs a program in the build's folder to its end, and returns its output.

        command: a path, or a name that is looked for in PATH, and arguments.
        env: all variables; None: those of this process.

        At the limit, at its end and with this process, the program and all that it started are killed.
        Raises CompileFailed if its status is not 0, with the output as ``log``; Timeout; Unavailable if it
        cannot be started.
        """


def get(fields: Mapping[str, Bytes]) -> Files | None:
    """The files under that key, from memory, disk, a seed or a remote; None: nobody has them.

    fields: everything that determines the files: labels and values. Their SHA-256 is the key.

    Raises InvalidArgument; IoError where the files cannot be given out. A fault of the cache is a miss.
    """
    found = _files.get(_files.Request(_fields(fields)))
    return None if found is None else Files(found)


def put(
    fields: Mapping[str, Bytes],
    files: Mapping[str, Bytes],
    *,
    name: str = "",
    target: str = "",
    tool: str = "",
    sources: Iterable[str] = (),
    programs: Iterable[str] = (),
) -> Files:
    """Stores files, and returns them, or what another has stored under that key.

    files: names, such as ``"lib/adder.so"``, and contents.
    name, target, tool: for listings and messages: "adder", "sm_90" (at most 16 characters), "nvcc-13.0".
    sources: names of files that are source text: packs and remotes do not get them.
    programs: names of files that may be executed.

    Raises InvalidArgument; ResourceLimit above 512 MiB. Where the cache cannot store them, ``not_stored``
    says why.
    """
    request = _request(fields, name, target, tool, sources)
    return Files(_files.put(request, _listed(files, programs)))


def build_once(
    fields: Mapping[str, Bytes],
    build: Callable[[Path, Run], Inputs | None],
    *,
    timeout: float = 300.0,
    name: str = "",
    target: str = "",
    tool: str = "",
    sources: Iterable[str] = (),
) -> Files:
    """What get() finds, or the files that ``build(folder, run)`` leaves in its folder.

    build: runs in this thread. ``folder`` is empty, and its own; ``run`` (see Run) starts everything that
      takes time. It may return the Inputs that it has found out.
    timeout: seconds, after which programs of ``run`` are killed.

    Of all processes and threads of this machine one builds a key. The others wait, no longer than
    ``timeout`` and five seconds, whoever dies, stops or fails, and then build themselves. InvalidArgument,
    CompileFailed, WorkerCrashed, Timeout and ResourceLimit of ``build`` are the answer of all who wait;
    after other exceptions they build. Above 512 MiB the files are given out and not stored. Raises what
    ``build`` raises; as get(); Unavailable for a miss with KILN_NO_JIT.
    """
    request = _request(fields, name, target, tool, sources)
    begun = _begin(request, timeout)
    if isinstance(begun, Files):
        return begun
    try:
        if (inputs := build(Path(begun.folder()), _runner(begun))) is not None:
            if not isinstance(inputs, Inputs):
                raise errors.InvalidArgument(f"build returned {inputs!r}, and not None or kiln.cache.Inputs")
            paths, tools = ([_name("an input", os.fspath(each)) for each in of] for of in (inputs.files, inputs.tools))
            begun.add_inputs(paths, tools)
        return Files(begun.commit(request))
    except BaseException as error:
        code = error.code if isinstance(error, errors.Error) else errors.Unavailable.code
        begun.end(code, str(error))
        raise


class Turn:
    """The caller's turn to build, of begin(). Those who wait build when it has gone."""

    def __init__(self, build: _files.FileBuild):
        self._build = build

    def commit(self, files: Mapping[str, Bytes], **labels: Any) -> Files:
        """Ends the turn; labels as for put()."""
        return Files(self._build.commit(_request({}, **labels), _listed(files)))

    def end(self, message: str) -> None:
        """Without files: those who wait build."""
        self._build.end(errors.Unavailable.code, message)


def begin(fields: Mapping[str, Bytes], *, timeout: float, **labels: Any) -> Files | Turn:
    """As build_once(), for a build that is no function."""
    begun = _begin(_request(fields, **labels), timeout)
    return begun if isinstance(begun, Files) else Turn(begun)


def _begin(request: _files.Request, timeout: float) -> Files | _files.FileBuild:
    try:
        is_time = math.isfinite(timeout)
    except (TypeError, OverflowError):
        is_time = False
    if not is_time:
        raise errors.InvalidArgument(f"timeout is {timeout!r}, and not a number of seconds")
    begun = _files.begin(request, max(0, min(math.ceil(timeout * 1000), 2**62)))
    return begun if isinstance(begun, _files.FileBuild) else Files(begun)


@functools.cache
def machine_fields() -> dict[str, bytes]:
    """What host code in a library of Python belongs to."""
    machine = " ".join((platform.machine(), *platform.libc_ver()))
    return {"python": str(sysconfig.get_config_var("EXT_SUFFIX")).encode(), "machine": machine.encode()}


def remove(fields: Mapping[str, Bytes]) -> None:
    """Takes files out of the cache that cannot be used. Seeds and remotes keep theirs.

    Raises InvalidArgument, IoError, Unavailable (a read-only cache), ForkError.
    """
    _files.remove(_files.Request(_fields(fields)))


def _runner(build: _files.FileBuild) -> Run:
    def run(command: Sequence[str | os.PathLike], env: Mapping[str, str] | None = None) -> str:
        if isinstance(command, (str, bytes)):
            raise errors.InvalidArgument(f"command is {command!r}, and not a list of words")
        words = [os.fsencode(word) for word in command]
        variables = [os.fsencode(f"{key}={value}") for key, value in (os.environ if env is None else env).items()]
        status, signal, output = build.run(words, variables)
        told = output.decode(errors="replace")
        if status == 0 and signal == 0:
            return told
        how = f"was killed by signal {signal}" if signal else f"ended with status {status}"
        raise errors.CompileFailed(f"{os.fsdecode(words[0])} {how}:\n{told}", told)

    return run


def _bytes(value: Bytes, what: str) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise errors.InvalidArgument(f"{what} is a {type(value).__name__}, and neither a text nor bytes")


def _fields(fields: Mapping[str, Bytes]) -> list[_files.Named]:
    if not isinstance(fields, Mapping):
        raise errors.InvalidArgument(f"fields is {fields!r}, and not a mapping of labels to values")
    return [(_name("a label", label), _bytes(value, f"the field {label!r}"), False) for label, value in fields.items()]


def _listed(files: Mapping[str, Bytes], programs: Iterable[str] = ()) -> list[_files.Named]:
    if not isinstance(files, Mapping):
        raise errors.InvalidArgument(f"files is {files!r}, and not a mapping of names to contents")
    executable = set(programs)
    if unknown := executable - set(files):
        raise errors.InvalidArgument(f"programs has {min(unknown)!r}, which is none of the files")
    return [
        (_name("a name", name), _bytes(content, f"the file {name!r}"), name in executable)
        for name, content in files.items()
    ]


def _name(what: str, value: Any) -> bytes:
    name = os.fsencode(text(what, value))
    if b"\0" in name:
        raise errors.InvalidArgument(f"{what} is {value!r}, which has a NUL")
    return name


def _request(
    fields: Mapping[str, Bytes], name: str = "", target: str = "", tool: str = "", sources: Iterable[str] = ()
) -> _files.Request:
    words = _name("name", name), _name("target", target), _name("tool", tool)
    named = [_name("sources", each) for each in ([sources] if isinstance(sources, str) else sources)]
    return _files.Request(_fields(fields), *words, named)
