"""Kernels from CUDA C++ sources: built once, kept in Kiln's cache, launched on any tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from ._arguments import (
    Extent,
    current_device,
    device_of,
    extent,
    is_other_current,
    kind,
    ordinal,
    priority_number,
    stream_number,
    value_of,
)
from ._given import path, several, text, whole
from ._library import library
from .errors import InvalidArgument, IoError, NotFound

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
            names if sources != [""] or not ptx else [],  # entry() finds those of PTX: NVRTC knows none
            text("target", target or ""),
            sources[1:],
            [*several("link", link, path), *(os.path.abspath(each) for each in ptx)],
            several("link_options", link_options),
        )
        self._device = None if device is None else ordinal(device)
        self._entry = names[0] if names else None
        self._modules: dict[int, Any] = {}  # by device; shared by what entry() makes of this
        self._handles: dict[int, Any] = {}  # by device: of this entry

    @classmethod
    def from_file(cls, file: str | os.PathLike, name: str | Sequence[str] | None = None, **how: Any) -> Kernel:
        """A kernel of the source in a file, which is read once, now.

        ``how`` are the other arguments of :class:`Kernel`. The folder of the file is searched for headers
        after ``include_dirs``, as nvcc does. A file ``NAME.ptx`` is PTX, which nvJitLink makes a cubin of; there
        ``name`` is a kernel's lowered name, as ``extern "C"`` has it, or its name in the source.
        Raises :class:`kiln.NotFound` if there is no such file.
        """
        return cls(_path(file), name, **how)

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
        cluster: Extent | None = None,
        programmatic: bool = False,
        priority: int | None = None,
        preferred_cluster: Extent | None = None,
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
        values = [value_of(argument) for argument in args]
        kinds = bytes(map(kind, map(type, args))) if bytes in map(type, values) else None
        device = self._device if self._device is not None else device_of(args)
        shape = [*extent("grid", grid), *extent("block", block)]
        shape += (1, 1, 1) if cluster is None else extent("cluster", cluster)
        if type(shared) is not int:
            shared = whole("shared", shared)
        handle = self._on(device)
        number = stream_number(stream, device)
        how: tuple[int, ...] = ()
        if cooperative or programmatic or priority is not None or preferred_cluster is not None:
            flags = (1 if cooperative else 0) | (2 if programmatic else 0) | (0 if priority is None else 4)
            preferred = (0, 0, 0) if preferred_cluster is None else extent("preferred_cluster", preferred_cluster)
            how = (flags, 0 if priority is None else priority_number(priority), *preferred)
        launch = library().kernel_launch
        if number or not is_other_current(device):
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
            return ordinal(device)
        return self._device if self._device is not None else current_device()

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
