"""Kernels from CUDA C++ sources: built once, kept in Kiln's cache, launched on any tensor."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from ._given import path, several, text, whole
from ._library import library
from .errors import InvalidArgument, IoError, NotFound

_Extent = Union[int, Sequence[int]]
_Source = Union[str, os.PathLike]
_Sources = Union[_Source, Sequence[_Source]]
_Paths = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]]]


class Kernel:
    """A kernel of a CUDA C++ source.

    >>> fill = kiln.Kernel('extern "C" __global__ void fill(float* y, float x, int n) {...}')
    >>> fill(64, 256, y, 1.5, y.numel())            # grid, block, arguments

    A source is the text, or a ``pathlib.Path``: see :meth:`from_file`.

    ``name`` is the kernel's name or name expression, such as ``"scale<float>"``; with a sequence of
    names the first is launched, and :meth:`entry` finds the others. Without a name the source must
    have one kernel that is no template.

    Nothing is built until the kernel is used on a device, or until :meth:`prepare`. It then comes
    from the cache, or is built for that device. ``device`` is the CUDA ordinal, an object with an
    ``index`` such as torch's device, or None: the device of the first tensor of each launch. The key
    in the cache covers the text, the options and all headers, so a changed header is never missed.
    ``target="compute_80"`` gives PTX, which the driver compiles for any device of 8.0 or later.

    Several sources, and a source with the option ``-rdc=true`` or ``-dlto``, are linked with
    nvJitLink, together with the files of ``link`` (cubins, PTX, LTO-IR, objects, archives) and with
    ``link_options``. All sources have the other arguments in common; the first has the names.

    Any number of threads may use one Kernel.
    """

    def __init__(
        self,
        source: _Sources,
        name: str | Sequence[str] | None = None,
        *,
        options: str | Sequence[str] = (),
        device: Any = None,
        headers: Mapping[str, str] | None = None,
        include_dirs: _Paths = (),
        defines: Mapping[str, Any] | str | Sequence[str] = (),
        file_name: str | None = None,
        target: str | None = None,
        link: _Paths = (),
        link_options: str | Sequence[str] = (),
    ):
        names, given = several("name", name), _listed(source)
        files = [each for each in given if isinstance(each, os.PathLike)]
        ptx = [_existing(each) for each in files if os.fspath(each).endswith(".ptx")]  # which is linked
        given = [each for each in given if not _is_ptx(each)] or given[:1]
        sources = [_source(each) for each in given]
        if not sources:
            raise InvalidArgument("source is missing: a kernel has one source or several")
        if file_name is None and isinstance(given[0], os.PathLike):
            file_name = os.path.basename(os.fspath(given[0]))
        folders = [os.path.abspath(os.path.dirname(os.fspath(each)) or ".") for each in files]
        if isinstance(defines, Mapping):
            defines = [key if value is None else f"{key}={value}" for key, value in defines.items()]
        if headers is not None and not isinstance(headers, Mapping):
            raise InvalidArgument("headers have their texts by their names: {'own.h': '...'}")
        self._arguments = (
            sources[0],
            text("file_name", file_name or ""),
            {text("headers", key): text(f"headers[{key!r}]", each) for key, each in (headers or {}).items()},
            [*several("include_dirs", include_dirs, path), *dict.fromkeys(folders)],
            several("defines", defines),
            several("options", options),
            names,
            text("target", target or ""),
            sources[1:],
            [*several("link", link, path), *(os.path.abspath(each) for each in ptx)],
            several("link_options", link_options),
        )
        self._device = None if device is None else _ordinal(device)
        self._entry = names[0] if names else None
        self._modules: dict[int, Any] = {}  # by device; shared by what entry() makes of this
        self._handles: dict[int, Any] = {}  # by device: of this entry

    @classmethod
    def from_file(cls, file: str | os.PathLike, name: str | Sequence[str] | None = None, **how: Any) -> Kernel:
        """A kernel of the source in a file, which is read once, now.

        ``how`` are the other arguments of :class:`Kernel`. The folder of the file is searched for headers
        after ``include_dirs``, as nvcc does. A file ``NAME.ptx`` is PTX, which nvJitLink makes a cubin of.
        Raises :class:`kiln.NotFound` if there is no such file.
        """
        return cls(_path(file), name, **how)

    def __call__(
        self,
        grid: _Extent,
        block: _Extent,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
        cluster: _Extent | None = None,
        programmatic: bool = False,
        priority: int | None = None,
        preferred_cluster: _Extent | None = None,
    ) -> None:
        """Launches the kernel, and returns without waiting for it.

        ``grid``, ``block`` and ``cluster`` are a number or up to three, ``shared`` the bytes of
        dynamic shared memory. ``stream`` is a number (a ``CUstream``), an object with
        ``__cuda_stream__`` or ``cuda_stream``, or None: torch's current stream of the device.

        ``programmatic`` is programmatic dependent launch: the kernel may begin before the kernel before
        it in the stream has ended, and waits for its results by ``cudaGridDependencySynchronize()``.
        ``priority`` is a number as of streams, of which the least runs first. ``preferred_cluster`` is a
        larger cluster, a multiple of ``cluster``, for devices that have room for it. These three are
        hints: a device or driver that does not know one launches without it.

        Arguments: tensors on the kernel's device, by ``__dlpack__`` or ``__cuda_array_interface__``,
        which does not say a device: give the kernel one, if all tensors have no more than that;
        scalars of NumPy and ctypes, ctypes structures and bytes, exactly as they are; an int, a bool
        and a float of Python in the size of their parameter: an int becomes a float for a ``float``
        parameter, and a float for a whole number is refused, as is a scalar of NumPy or ctypes of the
        other kind. Kiln checks number and sizes. It knows kinds by the mangled name or the PTX, and
        neither tells those of structs, of 16-bit floats, and of a linked kernel that is ``extern "C"``:
        these take no number of Python.
        """
        values = [_value(argument) for argument in args]
        kinds = bytes(map(_kind, map(type, args))) if bytes in map(type, values) else None
        device = self._device if self._device is not None else _device_of(args)
        shape = [*_extent("grid", grid), *_extent("block", block)]
        shape += (1, 1, 1) if cluster is None else _extent("cluster", cluster)
        if type(shared) is not int:
            shared = whole("shared", shared)
        handle = self._on(device)
        number = _stream(stream, device)
        how: tuple[int, ...] = ()
        if cooperative or programmatic or priority is not None or preferred_cluster is not None:
            flags = (1 if cooperative else 0) | (2 if programmatic else 0) | (0 if priority is None else 4)
            preferred = (0, 0, 0) if preferred_cluster is None else _extent("preferred_cluster", preferred_cluster)
            how = (flags, 0 if priority is None else _priority(priority), *preferred)
        launch = library().kernel_launch
        if number or not _is_other_current(device):
            launch(handle, number, shape, shared, how, kinds, *values)
            return
        import torch

        with torch.cuda.device(device):  # whose default stream it is
            launch(handle, number, shape, shared, how, kinds, *values)

    def prepare(self, device: Any = None) -> Kernel:
        """Fetches or builds the kernel and loads it on the device; returns this kernel."""
        self._on(self._chosen(device))
        return self

    def entry(self, name: str) -> Kernel:
        """Another kernel of the same source, by a name that was given at first, or by lowered name."""
        other = object.__new__(Kernel)
        other.__dict__.update(self.__dict__)
        other._entry = name
        other._handles = {}
        return other

    @property
    def attributes(self) -> dict[str, int]:
        """Registers, memory and limits, as the driver reports them for the device."""
        found = library().kernel_attributes(self._on(self._chosen(None)))
        return {str(name): value for name, value in found.items()}

    def global_variable(self, name: str, device: Any = None) -> tuple[int, int]:
        """The device address and the bytes of a ``__device__`` or ``__constant__`` variable. Give
        its name expression, ``"&table"``, as a name of the kernel, or it may have been left out."""
        address, size = library().kernel_global(self._module(self._chosen(device)), name)
        return address, size

    @property
    def key(self) -> str:
        """The key in the cache, which ``python -m kiln show`` takes."""
        return str(library().kernel_key(self._module(self._chosen(None))))

    @property
    def image(self) -> bytes:
        """The cubin, or the PTX, that is loaded."""
        return bytes(library().kernel_image(self._module(self._chosen(None))))

    def object_code(self):
        """A ``cuda.core.ObjectCode`` of the same image, for programs that use cuda.core. It has lowered
        names: ``get_kernel()`` finds a kernel that is ``extern "C"``, or by its mangled name."""
        try:
            from cuda.core import ObjectCode
        except ImportError:
            from cuda.core.experimental import ObjectCode
        image = self.image
        is_cubin = image.startswith(b"\x7fELF")
        return ObjectCode.from_cubin(image) if is_cubin else ObjectCode.from_ptx(image)

    def __getstate__(self) -> dict[str, Any]:  # without what is of this process
        return {**self.__dict__, "_modules": {}, "_handles": {}}

    def __repr__(self) -> str:
        name = self._entry or self._arguments[1] or "kernel.cu"
        return f"<kiln.Kernel {name}>"

    def _chosen(self, device: Any) -> int:
        if device is not None:
            return _ordinal(device)
        return self._device if self._device is not None else _current_device()

    def _module(self, device: int):
        module = self._modules.get(device)
        if module is None:
            # Threads that ask at once wait in the library, and get the same.
            module = library().kernel_from_source(device, *self._arguments)
            self._modules[device] = module
        return module

    def _on(self, device: int):
        handle = self._handles.get(device)
        if handle is None:
            handle = self._module(device)
            if self._entry is not None:
                handle = library().kernel_entry(handle, self._entry)
            self._handles[device] = handle
        return handle


class Module:
    """The kernels of one source, which is built once for all of them.

    >>> module = kiln.Module.from_file("norms.cu", ["norm<float>", "norm<__half>"])
    >>> module["norm<float>"](64, 256, y, x, y.numel())
    >>> module.plain(64, 256, y)                    # a kernel that is no template

    ``names`` are the name expressions of the kernels and variables that are used: those of templates are
    needed, those of other kernels are not. The other arguments are those of :class:`Kernel`.

    Any number of threads may use one Module.
    """

    def __init__(self, source: _Sources, names: str | Sequence[str] | None = None, **how: Any):
        self._kernel = Kernel(source, names, **how)
        self._entries: dict[str, Kernel] = {}

    @classmethod
    def from_file(cls, file: str | os.PathLike, names: str | Sequence[str] | None = None, **how: Any) -> Module:
        """The same of a file; see :meth:`Kernel.from_file`."""
        return cls(_path(file), names, **how)

    def __getitem__(self, name: str) -> Kernel:
        """The kernel with this name. A name that the source has not is an error of its first launch."""
        kernel = self._entries.get(text("name", name))
        if kernel is None:
            kernel = self._entries.setdefault(name, self._kernel.entry(name))
        return kernel

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):  # of Python, such as those that copy and pickle
            raise AttributeError(f"kiln.Module has no attribute {name!r}; module[{name!r}] is a kernel")
        return self[name]

    def prepare(self, device: Any = None) -> Module:
        """Fetches or builds the kernels and loads them on the device; returns this module."""
        self._kernel._module(self._kernel._chosen(device))
        return self

    def global_variable(self, name: str, device: Any = None) -> tuple[int, int]:
        """As :meth:`Kernel.global_variable`."""
        return self._kernel.global_variable(name, device)

    @property
    def key(self) -> str:
        """The key in the cache, which ``python -m kiln show`` takes."""
        return self._kernel.key

    @property
    def image(self) -> bytes:
        """The cubin, or the PTX, that is loaded."""
        return self._kernel.image

    def __repr__(self) -> str:
        return f"<kiln.Module {self._kernel._arguments[1] or 'kernel.cu'}>"


def _priority(value: Any) -> int:
    number = whole("priority", value)
    if not -(2**31) <= number < 2**31:
        raise InvalidArgument(f"priority is {number}: priorities are small numbers, as of streams")
    return number


def _listed(source: Any) -> list[Any]:
    return [source] if isinstance(source, (str, os.PathLike)) or not hasattr(source, "__iter__") else list(source)


def _path(file: str | os.PathLike) -> Path:
    return Path(path("file", file))


def _source(source: Any) -> str:
    if not isinstance(source, os.PathLike):
        return _text(source)
    return "" if _is_ptx(source) else _read(source)


def _is_ptx(source: Any) -> bool:
    return isinstance(source, os.PathLike) and os.fspath(source).endswith(".ptx")


def _existing(file: os.PathLike) -> os.PathLike:
    if not os.path.isfile(file):
        raise NotFound(f"{os.fspath(file)}: there is no such file")
    return file


def _read(file: os.PathLike) -> str:
    try:
        return Path(file).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{os.fspath(file)} is no text in UTF-8: {error}") from None
    except FileNotFoundError:
        raise NotFound(f"{os.fspath(file)}: there is no such file") from None
    except OSError as error:
        raise IoError(f"{os.fspath(file)} cannot be read: {error.strerror}") from None


def _text(source: Any) -> str:
    if isinstance(source, str) and source.endswith((".cu", ".cuh", ".cu.h")) and "\n" not in source:
        raise InvalidArgument(
            f"source is {source!r}, which is the name of a file: kiln.Kernel.from_file({source!r}) reads it"
        )
    return text("source", source)


def _ordinal(device: Any) -> int:
    """0 of 0, ``"cuda:0"``, ``torch.device("cuda", 0)`` and ``kiln.devices()[0]``."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device):
        device = str(device)
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        if kind == "cuda" and (index.isdigit() or not index):
            return int(index) if index else _current_device()
        raise InvalidArgument(f"device is {device!r}; possible are numbers and 'cuda:N'")
    for name in ("ordinal", "index", "device_id"):  # of Kiln, of others, of cuda.core
        found = getattr(device, name, None)
        if found is not None and not callable(found):
            device = found
            break
    return whole("device", device)


def _current_device() -> int:
    """torch's current device where torch has started CUDA, else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_device()
    return 0


def _is_other_current(device: int) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return torch.cuda.current_device() != device


_DLPACK_CUDA = 2


def _device_of(arguments: Sequence[Any]) -> int:
    torch = sys.modules.get("torch")
    for argument in arguments:
        # torch's own __dlpack_device__() takes microseconds.
        if torch is not None and isinstance(argument, torch.Tensor):
            if argument.is_cuda:
                return argument.get_device()
        elif hasattr(argument, "__dlpack_device__"):
            kind, index = argument.__dlpack_device__()
            if int(kind) == _DLPACK_CUDA:
                return int(index)
    return _current_device()


def _extent(name: str, value: _Extent) -> tuple[int, int, int]:
    if hasattr(value, "__index__"):
        return (operator.index(value), 1, 1)
    try:
        numbers = tuple(operator.index(number) for number in value)
    except TypeError:
        numbers = ()
    if not 1 <= len(numbers) <= 3:
        raise InvalidArgument(f"{name} is {value!r}: give one to three whole numbers")
    return numbers + (1,) * (3 - len(numbers))


def _stream(stream: Any, device: int) -> int | None:
    """The CUstream as a number; None: the stream that tvm-ffi has of the tensors' framework."""
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return torch.cuda.current_stream(device).cuda_stream
        return None
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):  # of torch before 2.8, of CuPy
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise InvalidArgument(f"stream is {stream!r}: it has no __cuda_stream__ and is no number")


_ANY, _INTEGER, _FLOAT = 0, 1, 2  # KILN_ARGUMENT_...
_KINDS_OF_NUMPY = {"f4": _FLOAT, "f8": _FLOAT, "b1": _INTEGER}
_KINDS_OF_NUMPY |= {f"{sign}{size}": _INTEGER for sign in "iu" for size in (1, 2, 4, 8)}
_KINDS_OF_CTYPES = {"f": _FLOAT, "d": _FLOAT} | dict.fromkeys("?bBhHiIlLqQ", _INTEGER)


@functools.cache
def _kind(scalar: type) -> int:
    """Of the scalars of a type of NumPy or ctypes, whose values are passed as bytes."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(scalar, numpy.generic):
        return _KINDS_OF_NUMPY.get(numpy.dtype(scalar).str[1:], _ANY)
    if issubclass(scalar, ctypes._SimpleCData):
        return _KINDS_OF_CTYPES.get(scalar._type_, _ANY)
    return _ANY


def _value(argument: Any):
    """The argument as python/ffi takes it: a tensor, an address, an int, a float, or bytes."""
    kind = type(argument)
    if kind in (int, float, bool, bytes):
        return argument if kind is not int or -1 <= argument >> 63 <= 0 else _unsigned(argument)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(argument, numpy.generic):  # a scalar; float64 is a float
        return argument.tobytes()
    if hasattr(argument, "__dlpack__"):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(argument, torch.Tensor):
            if argument.is_conj() or argument.is_neg():
                raise InvalidArgument(
                    "an argument is a view that torch has not yet conjugated or negated in memory: pass "
                    "its resolve_conj().resolve_neg()"
                )
            if argument.requires_grad:
                return argument.detach()
        return argument
    if hasattr(argument, "__cuda_array_interface__"):
        address = argument.__cuda_array_interface__["data"][0]
        # It does not say of which device, so the library asks the driver.
        return ctypes.c_void_p(int(address)) if address else bytes(8)  # nothing in an empty one
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array)):
        return bytes(argument)
    if isinstance(argument, (bytearray, memoryview)):
        return bytes(argument)
    if isinstance(argument, int):  # an IntEnum
        return _value(int(argument))
    if isinstance(argument, float):
        return argument
    if argument is None:
        return bytes(8)  # a null pointer
    if isinstance(argument, (tuple, list)):
        raise InvalidArgument(
            f"an argument is a {kind.__name__}: give the arguments one by one, kernel(grid, block, x, y, n)"
        )
    raise InvalidArgument(
        f"an argument is of the type {kind.__name__}: possible are tensors with __dlpack__ or "
        "__cuda_array_interface__, scalars of NumPy, ctypes and Python, and bytes"
    )


def _unsigned(number: int) -> bytes:
    """One of 8 bytes, beyond the signed ones."""
    if not 0 <= number < 2**64:
        raise InvalidArgument(f"the argument {number} fits into no parameter")
    return number.to_bytes(8, "little")
