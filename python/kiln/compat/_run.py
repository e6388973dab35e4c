"""``python -m kiln run``: a program with a stand-in for NVRTC beneath it, and with ``--compat``
kiln.compat in each of its processes.

The program runs as Python would run it, in this process's place. Its own processes, and
those of a launcher, get the shims through PYTHONPATH: the folder ``children`` has a
sitecustomize module, which Python imports at its start. A launcher may be a program of
PATH, which is run as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from .. import errors
from .._library import kit_folder, program_path
from . import FRAMEWORKS, describe
from ._own_path import is_strict

CHILDREN = Path(__file__).absolute().parent / "children"
# What the sitecustomize module installs. The launcher of DeepSpeed passes on to other
# nodes what begins with PYTHON.
SETTINGS = ("KILN_COMPAT", "PYTHON_KILN_COMPAT")

_USAGE = (
    "usage: python -m kiln run [--compat NAMES] [--simulate LIST] [--]"
    " (SCRIPT | -m MODULE | LAUNCHER) [ARGUMENT...]\n       python -m kiln run --print-env"
)
_HELP = f"""{_USAGE}

Runs a program with a stand-in for NVRTC beneath it, wherever it loads NVRTC. With
--compat, kernels of Kiln also stand in for the kernels of its frameworks. No line of the
program changes; all its processes take part, also under a launcher. The first rank prints
the names that are replaced, and those that are not.

  --compat NAMES  of {", ".join(FRAMEWORKS)}; separated by commas. Where two have
                  a module of the same name, it has the functions of the first
  --simulate LIST gives the program simulated devices, such as 8.6,9.0, as its CUDA
                  driver (the test kit: docs/testing.md)
  -m MODULE       a module instead of a script
  LAUNCHER        a program of PATH, such as torchrun or deepspeed
  --print-env     prints the stand-in's variables, as lines for a shell; runs nothing
  --help          this text

Where Kiln cannot compute, the framework's own path is taken, with one warning for each
function; KILN_PYTHON_STRICT=1 makes that an error. The status is the program's."""

# The first of them that a launcher has set.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def main(arguments: list[str]) -> None:
    frameworks, simulated, program = _parse(list(arguments))
    os.environ |= _variables(simulated)
    if frameworks:
        _prepare(frameworks, program)
    if launcher := _launcher(program[0]):
        os.execv(launcher, [launcher, *program[1:]])
    os.execv(sys.executable, [sys.executable, *_options_of_python(), *program])


def _variables(simulated: str) -> dict[str, str]:
    """What `kiln run` sets for a program: the stand-in for NVRTC, and simulated devices. Where
    there can be no stand-in a line on stderr says so, and the program runs as without Kiln."""
    environment, options = os.environ.copy(), ["--print-env", "--json"]
    if simulated:
        options.append(f"--simulate={simulated}")
        if kit := kit_folder():
            environment["KILN_TEST_KIT"] = kit
    try:
        command = [str(program_path()), "run", *options]
    except errors.Unavailable as missing:
        if simulated:
            sys.exit(f"kiln run: {missing}")
        why = str(missing)
    else:
        said = None if simulated else subprocess.DEVNULL
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=said, check=False)
        if done.returncode == 0:
            return json.loads(done.stdout)
        if simulated:
            sys.exit(done.returncode)
        why = json.loads(done.stdout)["error"]["message"].removeprefix("run: ")
    print(f"kiln: run: nothing stands in for NVRTC: {why}", file=sys.stderr, flush=True)
    return {}


def _prepare(frameworks: list[str], program: list[str]) -> None:
    """kiln.compat in the processes of the program."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        _refuse("Python's options -E, -I and -S keep its processes from being prepared")
    sys.path[:0] = _folders(program)  # the program's own may be a framework
    try:
        installation = describe(*frameworks)
    except errors.InvalidArgument as error:
        _refuse(str(error))
    if not any(installation.replaced.values()) and is_strict():
        sys.exit(f"{installation}. KILN_PYTHON_STRICT forbids that")
    if _is_first_rank():
        print(installation, file=sys.stderr, flush=True)
    os.environ |= dict.fromkeys(SETTINGS, ",".join(frameworks))
    os.environ["PYTHONPATH"] = _with_children(os.environ.get("PYTHONPATH", ""))


def _launcher(name: str) -> str | None:
    """The program of PATH, unless there is a script of that name; or that of a path."""
    if _is_executable(name):
        return name
    is_script = name == "-m" or os.path.exists(name) or os.path.dirname(name)
    return None if is_script else shutil.which(name)


def _is_executable(name: str) -> bool:
    """One of machine code: a script is Python's to run, whatever its first line says."""
    if not (os.path.isfile(name) and os.access(name, os.X_OK)):
        return False
    with open(name, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _folders(program: list[str]) -> list[str]:
    """Those from which Python will import first; a launcher's script is an argument."""
    first, *arguments = program
    here = [os.getcwd()] if first == "-m" else []
    scripts = [first, *(each for each in arguments if each.endswith(".py"))]
    scripts = [os.path.abspath(each) for each in scripts if os.path.isfile(each)]
    return here + [os.path.dirname(each) for each in scripts]


def _parse(rest: list[str]) -> tuple[list[str], str, list[str]]:
    """(frameworks, simulated devices, what follows Python's own options)."""
    names: list[str] = []
    simulated = ""
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option in ("-h", "--help"):
            print(_HELP)
            sys.exit(0)
        if option not in ("--compat", "--simulate"):
            _refuse(f"there is no option {option}")
        if not equals:
            value = rest.pop(0) if rest else ""
        if option == "--simulate":
            simulated = value or _refuse("--simulate needs devices, such as 8.6,9.0")
            continue
        names = [name for name in value.split(",") if name]
        if not names:
            _refuse(f"--compat needs one or more of {', '.join(FRAMEWORKS)}")
    if not rest or rest == ["-m"]:
        _refuse("there is no program to run")
    return names, simulated, rest


def _refuse(message: str) -> NoReturn:
    print(f"kiln run: {message}\n{_USAGE}", file=sys.stderr)
    sys.exit(2)


def _is_first_rank() -> bool:
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    return rank == "0"


def _with_children(path: str) -> str:
    others = [each for each in path.split(os.pathsep) if each and each != str(CHILDREN)]
    return os.pathsep.join([str(CHILDREN), *others])


def _options_of_python() -> list[str]:
    """Such as -u: what stands before "-m kiln"."""
    given = sys.orig_argv[1:]
    for i, option in enumerate(given):
        if option == "-m" or option == "-mkiln":
            return given[:i]
    return []
