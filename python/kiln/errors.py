"""The exceptions of Kiln. Their messages name the object, the cause and the remedy."""

from __future__ import annotations


class Error(RuntimeError):
    """The base class. ``code`` is the number of ``kiln/c.h``: 5 is ``KILN_TIMEOUT``."""

    code = 0


class InvalidArgument(Error, ValueError):
    """An argument, a setting or a tensor that cannot be used."""


class NotFound(Error, LookupError):
    """There is no such template, kernel or file."""


class CompileFailed(Error):
    """The compiler refused the source. ``log`` is what it printed; a line ``hint: …`` of Kiln's may
    follow."""

    def __init__(self, message: str = "", log: str = ""):
        super().__init__(message)
        self.log = log

    def __reduce__(self):  # with the log, to another process
        return type(self), (str(self), self.log)


class WorkerCrashed(Error):
    """The process that compiles was killed or crashed."""


class Timeout(Error, TimeoutError):
    """A time limit has passed, such as that of a build."""


class ResourceLimit(Error):
    """A build needed more memory, or wrote larger files, than its limit."""


class Cancelled(Error):
    """The call was cancelled."""


class Corrupt(Error):
    """Data is damaged that cannot be built again."""


class Untrusted(Error):
    """A file belongs to a user that is not trusted."""


class IoError(Error, OSError):
    """A file cannot be read or written."""


class Unavailable(Error):
    """Something is missing: NVRTC, a driver, a device, a kernel if builds are forbidden."""


class DeviceError(Error):
    """The CUDA driver reported an error, maybe that of an earlier kernel."""


class ForkError(Error):
    """This process was forked from one that had used Kiln."""


CLASSES = (  # by their codes
    Error,
    InvalidArgument,
    NotFound,
    CompileFailed,
    WorkerCrashed,
    Timeout,
    ResourceLimit,
    Cancelled,
    Corrupt,
    Untrusted,
    IoError,
    Unavailable,
    DeviceError,
    ForkError,
)
for _code, _class in enumerate(CLASSES):
    _class.code = _code
del _code, _class


class CompileFailedFromText:
    """Makes a CompileFailed of the text of python/ffi: the number of bytes before the log, a newline,
    and the message. A class, since tvm_ffi takes no function."""

    def __new__(cls, text: str) -> CompileFailed:
        count, _, message = text.partition("\n")
        log = message.encode()[int(count) :].decode()
        return CompileFailed(message, log)
