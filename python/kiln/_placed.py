"""Copies of files of the cache at paths where other programs look for them."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path


def place(source: str, path: str) -> None:
    """Copies a file at once, for those who read `path` meanwhile. A copy that is there already stays.

    Raises OSError, and then leaves nothing.
    """
    with contextlib.suppress(OSError):
        if Path(path).read_bytes() == Path(source).read_bytes():
            return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        shutil.copyfile(source, new)
        if os.access(source, os.X_OK):
            mode = os.stat(new).st_mode
            os.chmod(new, mode | (mode & 0o444) >> 2)  # whoever may read it
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
