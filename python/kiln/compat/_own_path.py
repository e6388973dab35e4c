"""A function of Kiln in a framework's place, and the framework's own path.

Where Kiln cannot compute a call (kiln.Unavailable: no NVRTC, KILN_DISABLE, KILN_NO_JIT;
kiln.InvalidArgument: a type, a shape or an option), the original function does. Where there is none, since the extension was
never built, a formula of torch does. A warning says so once for each function.
KILN_PYTHON_STRICT=1 makes it an error.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings

from .. import errors


class FallbackWarning(UserWarning):
    """A framework's own path is taken. Warned of once for each function."""


class OwnPath(Exception):
    """Raised by a function that leaves a call to the original, as it was asked to."""


_lock = threading.Lock()
_warned: set[str] = set()


def is_strict() -> bool:
    return os.environ.get("KILN_PYTHON_STRICT", "") not in ("", "0")


def warn_once(name: str, message: str) -> None:
    with _lock:
        if name in _warned:
            return
        _warned.add(name)
    warnings.warn(message, FallbackWarning, stacklevel=3)


def unfused(formula):
    """Names the formula that computes what the decorated function does."""

    def decorate(function):
        function.unfused = formula
        return function

    return decorate


def guarded(name, function, original):
    """``function``, or what takes its place. ``name`` is the framework's, and
    ``original()`` its function; None, if there is none."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        reason = None
        try:
            return function(*args, **kwargs)
        except OwnPath:
            pass
        except (errors.Unavailable, errors.InvalidArgument) as error:
            if is_strict():
                raise
            reason = error
        own = original() or getattr(function, "unfused", None)
        if own is None:
            raise reason or errors.Unavailable(f"only kiln has {name}")
        if reason is not None:
            warn_once(name, f"kiln does not compute {name}; its own path does: {reason}")
        return own(*args, **kwargs)

    call.is_of_kiln = True
    return call
