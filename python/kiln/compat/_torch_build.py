"""A build as torch.utils.cpp_extension writes it for ninja: its text, its run, and what it reads."""

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

NINJA_FILE = "build.ninja"
NO_TOOLKIT = "/kiln/no-cuda-home"
_OUTPUT, _LINKED = "kiln-output", "kiln-linked"

_LINK = "command = $cxx $in $ldflags -o $out"
_COMPILE = "$cxx -MMD -MF $out.d"
_PARTS_OF_GCC = ("cc1plus", "collect2", "as", "ld")
_PARTS_OF_NVCC = ("cudafe++", "fatbinary", "nvlink", "ptxas", "nvcc.profile", "../nvvm/bin/cicc")
_PARTS_OF_NVVM = "../nvvm/libdevice/libdevice.10.bc"

_torch_lock = threading.RLock()  # held while a variable of torch's module is another
os.register_at_fork(
    before=_torch_lock.acquire, after_in_parent=_torch_lock.release, after_in_child=_torch_lock.release
)


def compose(module: Any, given: dict[str, Any], toolkit: str, own_folder: str) -> str:
    """Every command of the build. The toolkit need not be there. Sources in own_folder are named without it.

    given: the arguments of torch's _jit_compile. Raises Unavailable for a torch that builds in another way.
    """
    values = {key: value or [] for key, value in given.items() if key.startswith("extra_")}
    values |= {key: given[key] for key in ("name", "sources", "with_cuda", "verbose", "is_standalone")}
    values |= {"with_sycl": False, "extra_ldflags": list(values["extra_ldflags"])}
    with _torch_lock, tempfile.TemporaryDirectory(prefix="kiln-ninja-") as folder:
        values["path"] = os.path.join(folder, NINJA_FILE)
        own, module.CUDA_HOME = module.CUDA_HOME, toolkit
        try:
            values["extra_ldflags"] = _call(module._prepare_ldflags, values)
            _call(module._write_ninja_file_to_build_library, values)
        except (KeyError, AttributeError) as error:
            raise errors.Unavailable(f"kiln does not know how this torch builds: {error}") from error
        finally:
            module.CUDA_HOME = own
        text = Path(values["path"]).read_text()
    for name in (own_folder, own_folder.replace(" ", "$ ")):
        text = text.replace(name, "")
    is_known = _LINK in text and _COMPILE in text
    _, is_cuda, rule = text.partition("rule cuda_compile")
    if not is_known or (is_cuda and "depfile" not in rule.partition("rule ")[0]):
        raise errors.Unavailable("kiln does not know how this torch builds")
    return text


def _call(function: Callable, values: dict[str, Any]) -> Any:
    """With those that this version of torch takes."""
    return function(**{name: values[name] for name in inspect.signature(function).parameters})


def for_key(text: str, toolkit: str) -> str:
    """Without what is another on a node that has no compiler: a compiler's cache, and the name of lib64."""
    text = re.sub(r"^(cxx|nvcc) = s?ccache ", r"\1 = ", text, flags=re.MULTILINE)
    return text.replace(f"-L{toolkit}/lib64", f"-L{toolkit}/lib")


def run_ninja(what: str, text: str, folder: Path, run: cache.Run, is_shown: bool) -> None:
    """Raises CompileFailed with all that the compilers have said, and what run() raises."""
    build = text.replace(_COMPILE, _COMPILE.replace("-MMD", "-MD"))
    build = build.replace(_LINK, f"{_LINK} -Wl,--trace > {_LINKED}")
    (folder / NINJA_FILE).write_text(build)
    jobs = os.environ.get("MAX_JOBS", "")
    # Its own record of dependencies has other paths: "a/../b" becomes "b", also where "a" is a symbolic link.
    command = ["ninja", "-v", "-d", "keepdepfile", *(["-j", jobs] if jobs.isdigit() else [])]
    output = folder / _OUTPUT
    try:
        with _shown(output) if is_shown else contextlib.nullcontext():
            run(["/bin/sh", "-c", f'exec "$@" > {_OUTPUT} 2>&1', "sh", *command])  # which may be long
    except errors.Error as error:
        told = output.read_text(errors="replace") if output.exists() else ""
        if isinstance(error, errors.CompileFailed):
            raise errors.CompileFailed(f"Error building extension '{what}': {told or error.log}", told) from None
        left = [each for each in re.findall(r"^build (\S+): ", text, re.MULTILINE) if not (folder / each).exists()]
        message = f"the extension {what} was not built, {', '.join(left)} not yet: {error}"
        raise type(error)(
            f"{message} (KILN_EXTENSION_TIMEOUT is the limit in seconds); output so far:\n{told}"
        ) from None


def inputs(text: str, folder: Path, run: cache.Run) -> cache.Inputs:
    """What the build has read, and the programs that it has started."""
    files = set()  # one that is not there any more keeps the result out of the cache
    for path in folder.rglob("*.d"):
        files.update(_dependencies(path.read_text(errors="surrogateescape")))
    for line in (folder / _LINKED).read_text(errors="surrogateescape").splitlines():
        files.update(_linked(line, folder))
    # Files that flags name: -Wl,--version-script=FILE, @FILE.
    for line in re.findall(r"^\w*flags = (.*)$", text, re.MULTILINE):
        named = (part for word in shlex.split(line) for part in re.split("[=,@]", word))
        files.update(each for each in named if each.startswith("/") and os.path.isfile(each))
    drivers, parts = _programs(text, run)
    return cache.Inputs(files | parts, drivers)


def _dependencies(rule: str) -> Iterator[str]:
    """Of a rule for make, as compilers write it."""
    _, _, named = rule.replace("\\\n", " ").partition(": ")
    for each in re.findall(r"(?:\\.|[^\\\s])+", named):
        yield re.sub(r"\\([ #:])", r"\1", each).replace("$$", "$")


def _linked(line: str, folder: Path) -> list[str]:
    """What the linker has copied, by a line of its trace: a file, "archive(member)" or "(archive)member"."""
    names = [line, re.sub(r"\([^()]*\)$", "", line), line[1 : line.rfind(")")] if line.startswith("(") else ""]
    found = [name for name in names if name and os.path.isfile(folder / name)]
    if not found and line.startswith("/"):
        found = [line]
    # Of shared libraries it takes the names alone.
    return [each for each in found if not re.search(r"\.so(\.\d+)*$", each)]


def _programs(text: str, run: cache.Run) -> tuple[set[str], set[str]]:
    """The compilers, and the programs and files that they start and read."""
    command = dict(re.findall(r"^(cxx|nvcc) = (.*)$", text, re.MULTILINE))
    cxx, nvcc = _words(command["cxx"]), _words(command.get("nvcc", ""))
    compilers, drivers, parts = [cxx], set(), set()
    if nvcc:
        drivers.update(word for word in nvcc if not word.startswith("-"))
        folder = os.path.dirname(os.path.realpath(shutil.which(nvcc[-1]) or nvcc[-1]))
        parts.update(os.path.normpath(os.path.join(folder, part)) for part in (*_PARTS_OF_NVCC, _PARTS_OF_NVVM))
        compilers.append(_host_compiler(text))
    for compiler in filter(None, compilers):
        drivers.update(word for word in compiler if not word.startswith("-"))
        for part in _PARTS_OF_GCC:
            with contextlib.suppress(errors.CompileFailed, errors.Unavailable):  # another compiler
                name = run([*compiler, f"-print-prog-name={part}"]).strip()
                parts.add(shutil.which(name) or "")
    return drivers, {each for each in parts if os.path.isfile(each)}


def _host_compiler(text: str) -> list[str]:
    """Of nvcc."""
    flags = " ".join(
        [os.environ.get("NVCC_PREPEND_FLAGS", ""), *re.findall(r"^cuda_cflags = (.*)$", text, re.MULTILINE)]
    )
    flags += " " + os.environ.get("NVCC_APPEND_FLAGS", "")
    named = re.findall(r"(?:-ccbin|--compiler-bindir)[ =](\S+)", flags) or [os.environ.get("NVCC_CCBIN", "")]
    return _words(named[-1] or "gcc")


def _words(command: str) -> list[str]:
    """Without the name of a compiler's cache, which may be absent on another node."""
    words = shlex.split(command)
    return words[1:] if words and os.path.basename(words[0]) in ("ccache", "sccache") else words


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
