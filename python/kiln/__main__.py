"""``python -m kiln``: the kiln program of this package, in this process's place; and
``python -m kiln run``, which runs a program with a stand-in for NVRTC and with kiln.compat."""

from __future__ import annotations

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["run"] and sys.argv[2:] != ["--print-env"]:
        from .compat import _run

        _run.main(sys.argv[2:])
    from ._library import program_path
    from ._seeds import seeds_of_packages
    from .errors import Unavailable

    try:
        program = str(program_path())
    except Unavailable as missing:
        sys.exit(f"kiln: {missing}")
    os.execve(program, [program, *sys.argv[1:]], {**os.environ, **seeds_of_packages()})


if __name__ == "__main__":
    main()
