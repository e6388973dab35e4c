"""The part "Files" of kiln/c.h, by ctypes: whoever wants files alone imports no tvm_ffi, which takes 50 ms.

Like kiln/c.h it may be used by any thread, and in a forked child as far as no build is begun there.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from ctypes import CDLL, POINTER, Structure, byref, sizeof, string_at
from ctypes import c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from . import errors
from ._library import library_path, settings
from ._version import __version__

_OUTCOMES = ("hit", "compiled", "waited", "", "", "", "seed", "remote")  # KILN_EVENT_...
_RESULTS = {  # of the functions that return no kiln_result
    "kiln_error_code": c_int,
    "kiln_error_message": c_char_p,
    "kiln_error_log": c_char_p,
    "kiln_file_cache_builds": c_bool,
    "kiln_files_key": c_char_p,
    "kiln_files_folder": c_char_p,
    "kiln_files_count": c_size_t,
    "kiln_files_name": c_char_p,
    "kiln_files_outcome": c_int,
    "kiln_files_not_stored": c_char_p,
}

# A name, a content, and of a file whether it may be executed.
Named = tuple[bytes, bytes, bool]
# Key, folder, names, outcome, and why they are not stored.
Found = tuple[str, str, list[str], str, str]


class _NamedBytes(Structure):
    _fields_ = (("name", c_char_p), ("bytes", c_char_p), ("size", c_size_t), ("is_program", c_bool))


class Request(Structure):
    """kiln_file_request."""

    _fields_ = (
        *(("struct_size", c_size_t), ("fields", POINTER(_NamedBytes)), ("field_count", c_size_t)),
        *(("name", c_char_p), ("target", c_char_p), ("tool", c_char_p)),
        *(("sources", POINTER(c_char_p)), ("source_count", c_size_t)),
    )

    def __init__(self, fields: Sequence[Named], name=b"", target=b"", tool=b"", sources: Sequence[bytes] = ()):
        listed, words = _named(fields), _words(sources)
        super().__init__(sizeof(Request), listed, len(fields), name, target, tool, words, len(sources))


class _Options(Structure):
    """kiln_options."""

    _fields_ = (
        *(("struct_size", c_size_t), ("settings", POINTER(c_char_p)), ("setting_count", c_size_t)),
        *(("on_event", c_void_p), ("on_event_user", c_void_p)),
    )


class _Owned:
    """A pointer that the library gives, and the function that frees it."""

    def __init__(self, free: str, pointer: int | None = None):
        self._as_parameter_ = c_void_p(pointer)
        self._free = _function(free)

    def __bool__(self) -> bool:
        return bool(self._as_parameter_)

    def __del__(self) -> None:
        if self:
            self._free(self)

    def out(self) -> Any:
        """The argument for a function that sets the pointer, which must not outlive this object."""
        return byref(self._as_parameter_)

    def text(self) -> bytes:
        return string_at(self._as_parameter_)


class FileBuild:
    """kiln_file_build: a turn to build, until commit(), end() or the end of this object."""

    def __init__(self, turn: _Owned):
        self._turn: _Owned | None = turn

    def folder(self) -> str:
        folder = c_char_p()
        _call("kiln_file_build_folder", self._open(), byref(folder))
        return os.fsdecode(folder.value or b"")

    def run(self, command: Sequence[bytes], environment: Sequence[bytes]) -> tuple[int, int, bytes]:
        """Status, signal and output."""
        status, signal, output = c_int(), c_int(), _Owned("kiln_text_free")
        inputs = self._open(), _words(command), _words(environment)
        _call_interruptibly("kiln_file_build_run", inputs, (byref(status), byref(signal), output))
        return status.value, signal.value, output.text()

    def add_inputs(self, files: Sequence[bytes], tools: Sequence[bytes]) -> None:
        _call("kiln_file_build_add_inputs", self._open(), _words(files), _words(tools))

    def commit(self, request: Request, files: Sequence[Named] | None = None) -> Found:
        """files: None: all that are in the folder. Ends the build."""
        turn, found = self._open(), _Owned("kiln_files_free")
        _call("kiln_file_build_describe", turn, byref(request))
        # Not NULL, which is for all files.
        listed = None if files is None else _named(files) if files else (_NamedBytes * 1)()
        _call("kiln_file_build_commit", turn, listed, c_size_t(len(files or ())), found.out())
        self._turn = None
        return _taken(found)

    def end(self, code: int, message: str) -> None:
        """Ends the build without files. With the code 0 those who wait build, else they get this error."""
        turn, self._turn = self._turn, None
        if turn is not None and code != 0:
            with contextlib.suppress(errors.Error):
                _call("kiln_file_build_fail", turn, c_int(code), message.encode(errors="replace"))

    def _open(self) -> _Owned:
        turn = self._turn
        if turn is None:
            raise errors.InvalidArgument("this build of files has ended")
        return turn


def get(request: Request) -> Found | None:
    found = _Owned("kiln_files_free")
    _call_interruptibly("kiln_file_cache_get", (_cache(), byref(request)), (found,))
    return _taken(found) if found else None


def put(request: Request, files: Sequence[Named]) -> Found:
    found = _Owned("kiln_files_free")
    _call("kiln_file_cache_put", _cache(), byref(request), _named(files), c_size_t(len(files)), found.out())
    return _taken(found)


def begin(request: Request, limit_ms: int) -> Found | FileBuild:
    found, turn = _Owned("kiln_files_free"), _Owned("kiln_file_build_free")
    inputs = _cache(), byref(request), c_uint64(limit_ms)
    _call_interruptibly("kiln_file_cache_begin", inputs, (found, turn))
    return FileBuild(turn) if turn else _taken(found)


def remove(request: Request) -> None:
    _call("kiln_file_cache_remove", _cache(), byref(request))


def builds() -> bool:
    """False with KILN_NO_JIT."""
    return _function("kiln_file_cache_builds")(_cache())


def new_folder() -> str:
    """A folder of this process, until it ends."""
    folder = _Owned("kiln_text_free")
    _call("kiln_file_cache_new_folder", _cache(), folder.out())
    return os.fsdecode(folder.text())


_opened: dict[str, _Owned] = {}


def is_open() -> bool:
    return bool(_opened)


def _cache() -> _Owned:
    """Opened by the first call, and closed when Python ends."""
    if "cache" not in _opened:
        words = _words([os.fsencode(each) for each in settings()])
        opened = _Owned("kiln_file_cache_close")
        _call("kiln_file_cache_open", byref(_Options(sizeof(_Options), words, len(words) - 1)), opened.out())
        # Without a lock, for whose holder a forked child would wait: two threads may open one each.
        _opened.setdefault("cache", opened)
    return _opened["cache"]


@functools.cache
def _library() -> CDLL:
    name = f"libkiln.so.{'.'.join(__version__.split('.')[:2])}"
    beside = library_path()
    for path in (beside.parent / name, beside.resolve().parent / name):
        if path.exists():
            return CDLL(str(path))
    raise errors.Unavailable(
        f"there is no {name} beside {beside}: install the package kiln-jit, or set KILN_FFI_LIBRARY"
    )


@functools.cache
def _function(name: str) -> Any:
    function = getattr(_library(), name)
    function.restype = _RESULTS.get(name, c_void_p)
    return function


def _call(name: str, *arguments: Any) -> None:
    _check(_owned_error(_function(name)(*arguments)))


def _call_interruptibly(name: str, inputs: tuple, outputs: tuple) -> None:
    """Calls a function that takes a kiln_cancel between inputs and outputs, in a thread of its own, so that Python's
    handlers of signals run meanwhile. A handler that raises cancels the call.

    The thread keeps all arguments until the function returns, and then frees outputs that nobody else has.
    """
    function, cancel = _function(name), _Owned("kiln_cancel_free", _function("kiln_cancel_new")())
    ended: list[Any] = []
    done = _thread.allocate_lock()

    def call() -> None:
        try:
            pointers = (each.out() if isinstance(each, _Owned) else each for each in outputs)
            ended.append(_owned_error(function(*inputs, cancel, *pointers)))
        except BaseException as error:
            ended.append(error)
        finally:
            done.release()

    done.acquire()
    try:
        if _thread.get_native_id() != os.getpid() or not _start(call):  # handlers run in the main thread alone
            call()
        while not done.acquire(timeout=0.1):  # a signal may come just before the wait begins
            pass
    except BaseException:
        _function("kiln_cancel_request")(cancel)
        raise
    if isinstance(ended[0], BaseException):
        raise ended[0]
    _check(ended[0])


def _start(call: Callable[[], None]) -> bool:
    """False: no thread can be started, such as while Python ends."""
    try:
        _thread.start_new_thread(call, ())
    except RuntimeError:
        return False
    return True


def _owned_error(failed: int | None) -> _Owned | None:
    return _Owned("kiln_error_free", failed) if failed else None


def _check(error: _Owned | None) -> None:
    if error is None:
        return
    code = _function("kiln_error_code")(error)
    message, log = (_function(f"kiln_error_{each}")(error).decode(errors="replace") for each in ("message", "log"))
    kind = errors.CLASSES[code] if code < len(errors.CLASSES) else errors.Error
    raise kind(message, log) if kind is errors.CompileFailed else kind(message)


def _taken(files: _Owned) -> Found:
    key, folder, not_stored = (_function(f"kiln_files_{each}")(files) for each in ("key", "folder", "not_stored"))
    count, name = _function("kiln_files_count")(files), _function("kiln_files_name")
    names = [os.fsdecode(name(files, c_size_t(i))) for i in range(count)]
    outcome = _OUTCOMES[_function("kiln_files_outcome")(files)]
    return key.decode(), os.fsdecode(folder), names, outcome, not_stored.decode(errors="replace")


def _named(items: Sequence[Named]) -> Any:
    return (_NamedBytes * len(items))(
        *((name, content, len(content), is_program) for name, content, is_program in items)
    )


def _words(words: Sequence[bytes]) -> Any:
    return (c_char_p * (len(words) + 1))(*words, None)
